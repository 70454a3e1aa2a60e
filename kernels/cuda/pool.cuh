// Pooling of scores along the tokens, a thread an output. Every output is its own sum from left to
// right, so equal neighbourhoods give equal bits (a sliding sum would not).
#ifndef KVTRIAGE_KERNELS_CUDA_POOL_CUH_
#define KVTRIAGE_KERNELS_CUDA_POOL_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/pool_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8)
    PoolKernel(const PoolList* lists, const ListPiece* pieces) {
  const ListPiece piece = pieces[simt::BlockX()];
  const PoolList& list = lists[piece.list];
  const uint32_t left = list.rows - piece.first_row;
  const uint32_t rows = left < kPieceRows ? left : kPieceRows;
  const bool average = list.average != 0;
  const int64_t half = list.kernel / 2;
  for (uint32_t r = simt::ThreadX(); r < rows; r += kListThreads) {
    const int64_t row = int64_t{piece.first_row} + r;
    const float own = simt::Load(list.scores + row);
    float pooled = average ? 0.0f : -INFINITY;
    for (int64_t at = row - half; at <= row + half; ++at) {
      if (at < 0 || at >= list.rows) continue;  // padding: 0, or -Inf
      const float x = simt::Load(list.scores + at);
      if (x != x) continue;
      pooled = average ? pooled + x : fmaxf(pooled, x);
    }
    if (average) pooled /= static_cast<float>(list.kernel);
    simt::Store(list.pooled + row, own == own ? pooled : own);
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_POOL_CUH_
