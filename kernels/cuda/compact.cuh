// Rows by number from one place to another: compaction (row j of the destination becomes row
// kept[j] of the source; kept ascends), and copies of rows that share no byte with their source
// (fusing, gathering).
//
// In place kept[j] >= j, so the rows that a tile writes are read by itself and by earlier tiles
// only. Blocks take tiles by ticket, in ascending order: a tile reads its sources into shared
// memory, says so, waits for those earlier tiles whose sources lie at or above its own first row,
// and writes. Reading never waits and a tile waits for lower tickets only, so there is no deadlock
// however few blocks run. One pass, any grid, and only rows that move are touched.
#ifndef KVTRIAGE_KERNELS_CUDA_COMPACT_CUH_
#define KVTRIAGE_KERNELS_CUDA_COMPACT_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/compact_launch.h"
#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

SIMT_DEVICE uint32_t NumberAt(const int32_t* list, uint32_t j) {
  return list == nullptr ? j : static_cast<uint32_t>(simt::Load(list + j));
}

// First of `n` ascending numbers that is not below `value`.
SIMT_DEVICE uint32_t LowerBound(const int32_t* sorted, uint32_t n, int32_t value) {
  uint32_t low = 0, high = n;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (simt::Load(sorted + middle) < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Waits until the earlier tiles that read rows at or above `row0` have done so. By all threads.
SIMT_DEVICE void AwaitReaders(const CompactArgs& args, const MoveStream& stream, uint32_t tile,
                              uint32_t row0) {
  const uint32_t first =
      LowerBound(stream.kept, stream.rows, static_cast<int32_t>(row0)) / args.tile_rows;
  for (uint32_t other = first + simt::ThreadX(); other < tile; other += kCompactThreads) {
    while (simt::LoadAcquire(args.read + stream.first_tile + other) == 0) simt::SpinPause();
  }
}

// `Word` is the widest type that all addresses and strides of the streams allow; of rows whose
// elements lie apart, the element.
template <class Word>
SIMT_KERNEL void SIMT_BOUNDS(kCompactThreads, 12) CompactRows(CompactArgs args) {
  const size_t staged_bytes =
      (size_t{args.tile_rows} * args.row_words * sizeof(Word) + 15) / 16 * 16;
  const simt::Shared<Word> staged(simt::SharedMemory(0));
  const simt::Shared<std::byte*> source(simt::SharedMemory(staged_bytes));
  const simt::Shared<std::byte*> target(simt::SharedMemory(staged_bytes + 8 * args.tile_rows));
  const simt::Shared<uint32_t> ticket(simt::SharedMemory(staged_bytes + 16 * args.tile_rows));
  const uint32_t thread = simt::ThreadX();
  for (;;) {
    if (thread == 0) ticket[0] = simt::AtomicAdd(args.ticket, 1u);
    simt::SyncThreads();
    const uint32_t mine = ticket[0];
    simt::SyncThreads();
    if (mine >= args.tile_count) return;
    const MoveTile at = args.tiles[mine];
    const MoveStream& stream = args.streams[at.stream];  // its fields are read where they are used
    const uint32_t row0 = at.tile * args.tile_rows;
    const uint32_t rows = stream.rows - row0 < args.tile_rows ? stream.rows - row0 : args.tile_rows;
    for (uint32_t r = thread; r < rows; r += kCompactThreads) {
      const uint32_t kept = NumberAt(stream.kept, row0 + r);
      const bool stays = stream.in_place != 0 && kept == row0 + r;
      source[r] = stays ? nullptr : RowAt(stream.from, kept);
    }
    // A loop of its own: two addresses at once would need more registers than there are.
    for (uint32_t r = thread; r < rows; r += kCompactThreads) {
      target[r] = RowAt(stream.to, NumberAt(stream.put, row0 + r));
    }
    simt::SyncThreads();
    for (uint32_t i = thread; i < rows * args.row_words; i += kCompactThreads) {
      const uint32_t r = i / args.row_words, word = i - r * args.row_words;
      const std::byte* row = source[r];
      if (row == nullptr) continue;
      const auto* from = reinterpret_cast<const Word*>(row + word * stream.from.elem_stride);
      if constexpr (sizeof(Word) == 16) {
        simt::AsyncCopy16(staged.data() + i, from);
      } else {
        staged[i] = simt::Load(from);
      }
    }
    simt::AsyncCommit();
    simt::AsyncWait<0>();
    simt::SyncThreads();
    if (stream.in_place != 0) {
      if (thread == 0) simt::StoreRelease(args.read + stream.first_tile + at.tile, 1);
      AwaitReaders(args, stream, at.tile, row0);
      simt::SyncThreads();
    }
    for (uint32_t i = thread; i < rows * args.row_words; i += kCompactThreads) {
      const uint32_t r = i / args.row_words, word = i - r * args.row_words;
      if (source[r] == nullptr) continue;
      simt::Store(reinterpret_cast<Word*>(target[r] + word * stream.to.elem_stride), staged[i]);
    }
    simt::SyncThreads();  // before the next tile takes the shared memory
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_COMPACT_CUH_
