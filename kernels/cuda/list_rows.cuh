// How kernels walk the rows of lists: a block takes a piece, a warp a row.
#ifndef KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_
#define KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/row_pieces.cuh"
#include "kernels/cuda/score_lists_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

SIMT_DEVICE float NotANumber() { return simt::BitsFloat(0x7FC00000u); }

// The sum over a warp by a fixed tree, in every lane.
template <class T>
SIMT_DEVICE T WarpSum(T value) {
  SIMT_UNROLL
  for (uint32_t step = 16; step > 0; step /= 2) {
    value += simt::ShuffleXor(simt::kAllLanes, value, step);
  }
  return value;
}

// Rows of the block's piece.
SIMT_DEVICE uint32_t RowsOfPiece(const DeviceList& list, const ListPiece& piece) {
  const uint32_t left = list.rows - piece.first_row;
  return left < kPieceRows ? left : kPieceRows;
}

SIMT_DEVICE RowSide RowOf(const DeviceView& view, uint32_t head, uint64_t row) {
  return {&view, RowAt(view.rows, row) + head * view.head_stride, RowScaleOf(view, head, row)};
}

SIMT_DEVICE void LoadAnyPiece(const RowSide& side, uint32_t wide, uint32_t first, uint32_t count,
                              float* out) {
  if (wide != 0) {
    LoadPiece<true>(side, first, count, out);
  } else {
    LoadPiece<false>(side, first, count, out);
  }
}

// By a whole warp: add(element number, element) for this lane's elements, in ascending order.
// Returns, in every lane, whether all elements of the row are finite.
template <class Add>
SIMT_DEVICE bool VisitRow(const RowSide& side, uint32_t wide, Add add) {
  const uint32_t elems = side.view->row_elems;
  bool good = true;
  for (uint32_t first = simt::ThreadX() % 32 * kPieceElems; first < elems;
       first += 32 * kPieceElems) {
    float x[kPieceElems];
    LoadAnyPiece(side, wide, first, elems - first, x);
    SIMT_UNROLL
    for (uint32_t i = 0; i < kPieceElems; ++i) {
      if (first + i >= elems) break;
      good = good && IsFinite(x[i]);
      add(first + i, x[i]);
    }
  }
  return simt::Ballot(simt::kAllLanes, !good) == 0;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_
