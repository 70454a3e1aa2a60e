// How far cached rows are from fresh ones (CacheBlend's HKVD tokens): one warp a row, all heads.
//
// Elements are taken in pieces of 8; piece i of a head belongs to lane i mod 32, whatever the
// layout and the types, and the lanes' sums are joined by a fixed tree: the same numbers give the
// same bits in any layout and grid.
#ifndef KVTRIAGE_KERNELS_CUDA_DIVERGENCE_CUH_
#define KVTRIAGE_KERNELS_CUDA_DIVERGENCE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/divergence_launch.h"
#include "kernels/cuda/row_pieces.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// kWide: both sides are rows of two-byte elements whose pieces are aligned to 16 bytes.
template <DivergenceForm kForm, bool kWide>
SIMT_KERNEL void SIMT_BOUNDS(kDivergenceThreads, kWide ? 12 : 8)
    DivergeRowsKernel(DivergenceArgs args) {
  const uint32_t lane = simt::ThreadX() % 32;
  const uint64_t item = uint64_t{simt::BlockX()} * (kDivergenceThreads / 32) + simt::ThreadX() / 32;
  if (item >= args.count) return;
  const auto row = static_cast<uint32_t>(simt::Load(args.rows + item));
  const uint64_t fresh_row = row - args.fresh_first, cached_row = row - args.cached_first;
  const std::byte* const fresh = RowAt(args.fresh.rows, fresh_row);
  const std::byte* const cached = RowAt(args.cached.rows, cached_row);
  float difference = 0.0f, old = 0.0f;
  for (uint32_t head = 0; head < args.fresh.heads; ++head) {
    const RowSide x{&args.fresh, fresh + head * args.fresh.head_stride,
                    kWide ? 1.0f : RowScaleOf(args.fresh, head, fresh_row)};
    const RowSide y{&args.cached, cached + head * args.cached.head_stride,
                    kWide ? 1.0f : RowScaleOf(args.cached, head, cached_row)};
    for (uint32_t first = lane * kPieceElems; first < args.fresh.row_elems;
         first += 32 * kPieceElems) {
      const uint32_t left = args.fresh.row_elems - first;
      float a[kPieceElems], b[kPieceElems];
      LoadPiece<kWide>(x, first, left, a);
      LoadPiece<kWide>(y, first, left, b);
      SIMT_UNROLL
      for (uint32_t i = 0; i < kPieceElems; ++i) {
        const float change = a[i] - b[i];
        difference += change * change;
        if constexpr (kForm != DivergenceForm::kL2) old += b[i] * b[i];
      }
    }
  }
  SIMT_UNROLL
  for (uint32_t step = 16; step > 0; step /= 2) {
    difference += simt::ShuffleXor(simt::kAllLanes, difference, step);
    if constexpr (kForm != DivergenceForm::kL2) old += simt::ShuffleXor(simt::kAllLanes, old, step);
  }
  if (lane == 0) {
    if constexpr (kForm == DivergenceForm::kRelative) difference /= old + 1e-6f;
    simt::Store(args.divergence + item, difference);
    if constexpr (kForm == DivergenceForm::kApart) simt::Store(args.old + item, old);
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DIVERGENCE_CUH_
