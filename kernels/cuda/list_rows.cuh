// How kernels walk the rows of lists: a block takes a piece, some lanes of a warp a row.
#ifndef KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_
#define KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/row_pieces.cuh"
#include "kernels/cuda/score_lists_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

SIMT_DEVICE float NotANumber() { return simt::BitsFloat(0x7FC00000u); }

// Lanes that share a row: as few as take its pieces at one go, so that short rows leave none idle.
SIMT_DEVICE uint32_t LanesFor(uint32_t elems) { return elems <= 64 ? 8 : elems <= 128 ? 16 : 32; }

// The sum over the lanes of a row by a fixed tree, in each of them.
template <class T>
SIMT_DEVICE T LaneSum(T value, uint32_t lanes) {
  for (uint32_t step = lanes / 2; step > 0; step /= 2) {
    value += simt::ShuffleXor(simt::kAllLanes, value, step);
  }
  return value;
}

// Whether a statement holds in all lanes of a row.
SIMT_DEVICE bool AllLanes(bool holds, uint32_t lanes) {
  const uint32_t first = simt::ThreadX() % 32 / lanes * lanes;
  const uint32_t row = lanes == 32 ? simt::kAllLanes : ((1u << lanes) - 1) << first;
  return (simt::Ballot(simt::kAllLanes, !holds) & row) == 0;
}

// Rows of the block's piece.
SIMT_DEVICE uint32_t RowsOfPiece(const DeviceList& list, const ListPiece& piece) {
  const uint32_t left = list.rows - piece.first_row;
  return left < kPieceRows ? left : kPieceRows;
}

SIMT_DEVICE RowSide RowOf(const DeviceView& view, uint32_t head, uint64_t row) {
  return {&view, RowAt(view.rows, row) + head * view.head_stride, RowScaleOf(view, head, row)};
}

SIMT_DEVICE void LoadFloats(const RowSide& side, uint32_t first, float* out) {
  const auto* at = reinterpret_cast<const simt::Vec16*>(side.head + size_t{first} * 4);
  SIMT_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    const simt::Vec16 words = simt::Load(at + i);
    out[4 * i] = simt::BitsFloat(words.x);
    out[4 * i + 1] = simt::BitsFloat(words.y);
    out[4 * i + 2] = simt::BitsFloat(words.z);
    out[4 * i + 3] = simt::BitsFloat(words.w);
  }
}

SIMT_DEVICE void LoadCodes(const RowSide& side, uint32_t first, float* out) {
  const simt::Vec8 words = simt::Load(reinterpret_cast<const simt::Vec8*>(side.head + first));
  SIMT_UNROLL
  for (uint32_t i = 0; i < kPieceElems; ++i) {
    const auto code = static_cast<uint8_t>((i < 4 ? words.x : words.y) >> i % 4 * 8);
    out[i] = F8ToFloat(code, side.view->dtype) * side.scale;
  }
}

// `wide` as in DeviceList.
SIMT_DEVICE void LoadAnyPiece(const RowSide& side, uint32_t wide, uint32_t first, uint32_t count,
                              float* out) {
  if (wide == 0) {
    LoadPiece<false>(side, first, count, out);
  } else if (side.view->dtype == DType::kF32) {
    LoadFloats(side, first, out);
  } else if (IsF8(side.view->dtype)) {
    LoadCodes(side, first, out);
  } else {
    LoadPiece<true>(side, first, count, out);
  }
}

// A row and the lanes that share it.
struct LaneRow {
  uint64_t row;
  uint32_t lanes;
  bool there;   // false: there is no such row; its lanes have nothing to read
  bool writes;  // one lane of a row that is there
};

// Row `r` of `rows`, those from `first` on, of the lanes that this thread belongs to.
SIMT_DEVICE LaneRow RowOfLanes(uint64_t first, uint32_t r, uint32_t rows, uint32_t lanes) {
  return {first + (r < rows ? r : rows - 1), lanes, r < rows,
          r < rows && simt::ThreadX() % lanes == 0};
}

// By all threads of a block: body(row) for `rows` rows, 1 at least, from `first` on, some at a
// time. Whole warps take part to the end.
template <class Body>
SIMT_DEVICE void ForRows(uint64_t first, uint32_t rows, uint32_t lanes, Body body) {
  for (uint32_t begin = 0; begin < rows; begin += kListThreads / lanes) {
    body(RowOfLanes(first, begin + simt::ThreadX() / lanes, rows, lanes));
  }
}

// By the lanes of a row: add(element number, element) for this lane's elements, in ascending order.
// Returns, in each of them, whether all elements of the row are finite.
template <class Add>
SIMT_DEVICE bool VisitRow(const DeviceView& view, uint32_t wide, uint32_t head, const LaneRow& at,
                          Add add) {
  const RowSide side = RowOf(view, head, at.row);
  const uint32_t elems = at.there ? view.row_elems : 0;
  bool good = true;
  for (uint32_t first = simt::ThreadX() % at.lanes * kPieceElems; first < elems;
       first += at.lanes * kPieceElems) {
    float x[kPieceElems];
    LoadAnyPiece(side, wide, first, elems - first, x);
    SIMT_UNROLL
    for (uint32_t i = 0; i < kPieceElems; ++i) {
      if (first + i >= elems) break;
      good = good && IsFinite(x[i]);
      add(first + i, x[i]);
    }
  }
  return AllLanes(good, at.lanes);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_LIST_ROWS_CUH_
