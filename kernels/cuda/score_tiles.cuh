// The tiles of tokens that a block of the scoring kernels works on.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_TILES_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_TILES_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

// Tiles of a block's shared memory.
struct TileShared {
  simt::Shared<float> keys, values;
  simt::Shared<uint32_t> bad;   // [tokens]
  simt::Shared<float> numbers;  // [tokens or rows][...]
};

SIMT_DEVICE TileShared ShareTiles(const QueryItem& rows, uint32_t tokens, bool values) {
  const size_t key_bytes = TileBytes(tokens, rows.k.row_elems);
  const size_t value_bytes = values ? TileBytes(tokens, rows.v.row_elems) : 0;
  const size_t bad = (key_bytes + value_bytes + 15) / 16 * 16;
  return {simt::Shared<float>(simt::SharedMemory(0)),
          simt::Shared<float>(simt::SharedMemory(key_bytes)),
          simt::Shared<uint32_t>(simt::SharedMemory(bad)),
          simt::Shared<float>(simt::SharedMemory(bad + size_t{tokens} * 4))};
}

// By all threads: K and V of tokens [first, first + count), where the request reads them, and which
// of the tokens are bad.
SIMT_DEVICE void LoadTokens(const QueryItem& rows, uint32_t kv_head, uint64_t first, uint32_t count,
                            uint32_t tokens, const TileShared& shared) {
  simt::SyncThreads();
  if (simt::ThreadX() < tokens) shared.bad[simt::ThreadX()] = 0;
  simt::SyncThreads();
  if (rows.reads_keys != 0) {
    LoadTile(rows.k, kv_head, first, count, tokens, kScoreThreads, shared.keys, shared.bad);
  }
  if (rows.reads_values != 0) {
    LoadTile(rows.v, kv_head, first, count, tokens, kScoreThreads, shared.values, shared.bad);
  }
  simt::SyncThreads();
}

SIMT_DEVICE bool Sees(const QueryRow& row, uint32_t token) {
  return static_cast<int64_t>(token) >= row.first && static_cast<int64_t>(token) < row.limit;
}

// A unit that turned out not to vote.
SIMT_DEVICE void LeaveOut(const QueryItem& query, uint32_t kv_head, QueryRow* rows) {
  const uint32_t count = query.rows_per_unit();
  for (uint32_t r = 0; r < count; ++r) rows[r].limit = 0;
  simt::AtomicAdd(query.usable + kv_head, 0u - count);
  simt::AtomicAdd(query.skipped + kv_head, count);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_TILES_CUH_
