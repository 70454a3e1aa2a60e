// What the host plans of a compaction, and how it starts the kernel (compact.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/device_view.h"

namespace kvtriage {

inline constexpr uint32_t kCompactThreads = 128;
inline constexpr uint32_t kCompactTileRows = 64;          // at most
inline constexpr size_t kCompactStagedBytes = 16 * 1024;  // at least one row (8 KiB at most)

// One head of one view of a (sequence, layer). Row put[j] of `to` becomes row kept[j] of `from`.
struct MoveStream {
  DeviceRows from, to;
  const int32_t* kept;  // [rows], ascending; null: j
  const int32_t* put;   // [rows], ascending; null: j. Never with in_place
  uint32_t rows;
  uint32_t first_tile;  // number of its tile 0 among all tiles of all streams
  uint32_t in_place;    // 1: `to` is `from`; 0: they share no row
};

struct MoveTile {
  uint32_t stream, tile;
};

struct CompactArgs {
  const MoveStream* streams;
  const MoveTile* tiles;  // in the order of tickets: neighbours are of different streams
  uint32_t tile_count;
  uint32_t tile_rows;  // rows of a tile
  uint32_t row_words;  // words of a row
  uint32_t* ticket;    // zero at the start
  uint32_t* read;      // [tile_count], by number; zero at the start
};

// Shared memory of a block: staged words, then source and destination address of each row.
inline constexpr size_t CompactSharedBytes(size_t tile_rows, size_t row_bytes) {
  return (tile_rows * row_bytes + 15) / 16 * 16 + 2 * 8 * tile_rows + 16;
}

// Starts the kernel for words of 1, 2, 4, 8 or 16 bytes with `blocks` blocks.
cudaError_t LaunchCompact(const CompactArgs& args, uint32_t word_bytes, uint32_t blocks,
                          cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_
