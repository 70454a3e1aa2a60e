// What LagKV reads off the cache: which rows are bad, and how far a row's channels spread between
// the extremes of the partition behind its own.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/list_rows.cuh"
#include "kernels/cuda/score_lagkv_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) MarkBadRowsKernel(LagArgs args) {
  const ListPiece piece = args.plan.pieces[simt::BlockX()];
  const DeviceList& list = args.plan.lists[piece.list];
  const uint32_t rows = RowsOfPiece(list, piece), lane = simt::ThreadX() % 32;
  for (uint32_t r = simt::ThreadX() / 32; r < rows; r += kListThreads / 32) {
    const uint64_t row = uint64_t{piece.first_row} + r;
    const auto nothing = [](uint32_t, float) {};
    const bool k = VisitRow(RowOf(*list.k, list.head, row), list.k_wide, nothing);
    const bool v = VisitRow(RowOf(*list.v, list.head, row), list.v_wide, nothing);
    if (lane == 0) simt::Store(args.bad + list.first + row, k && v ? 0.0f : NotANumber());
  }
}

// The least and the largest of every channel.
struct Extremes {
  simt::Shared<float> low, high;
  uint32_t pitch;

  SIMT_DEVICE uint32_t Place(uint32_t channel) const {
    return channel % kPieceElems * pitch + channel / kPieceElems;
  }
};

// By all threads: extremes of every channel over the good rows of [begin, end); +Inf and -Inf
// without any.
SIMT_DEVICE void FindExtremes(const DeviceView& view, uint32_t head, const float* bad,
                              uint64_t begin, uint64_t end, const Extremes& extremes) {
  for (uint32_t c = simt::ThreadX(); c < view.row_elems; c += kListThreads) {
    float lowest = INFINITY, highest = -INFINITY;
    for (uint64_t row = begin; row < end; ++row) {
      if (simt::Load(bad + row) != 0.0f) continue;
      const float x = Widened(RowOf(view, head, row), c);
      lowest = fminf(lowest, x);
      highest = fmaxf(highest, x);
    }
    extremes.low[extremes.Place(c)] = lowest;
    extremes.high[extremes.Place(c)] = highest;
  }
}

// By a whole warp: the sample deviation of y = (x - low) / (high - low) over the channels of a row,
// y = 0 where high is not above low. The row is read twice rather than kept.
SIMT_DEVICE float Deviation(const RowSide& side, uint32_t wide, const Extremes& extremes) {
  const auto spread = [&](uint32_t c, float x) {
    const float low = extremes.low[extremes.Place(c)];
    const float width = extremes.high[extremes.Place(c)] - low;
    return width > 0.0f ? (x - low) / width : 0.0f;
  };
  const uint32_t elems = side.view->row_elems;
  float sum = 0.0f, squares = 0.0f;
  VisitRow(side, wide, [&](uint32_t c, float x) { sum += spread(c, x); });
  const float mean = WarpSum(sum) / static_cast<float>(elems);
  VisitRow(side, wide, [&](uint32_t c, float x) {
    const float off = spread(c, x) - mean;
    squares += off * off;
  });
  return sqrtf(WarpSum(squares) / static_cast<float>(elems > 1 ? elems - 1 : 1));
}

// Grid: x partitions, y 0 for keys and 1 for values.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) LagDeviationsKernel(LagArgs args) {
  const uint32_t pitch = ExtremePitch(args.most_elems);
  const Extremes extremes{
      simt::Shared<float>(simt::SharedMemory(0)),
      simt::Shared<float>(simt::SharedMemory(size_t{8} * pitch * sizeof(float))), pitch};
  const LagPartition part = args.partitions[simt::BlockX()];
  const DeviceList& list = args.plan.lists[part.list];
  const bool keys = simt::BlockY() == 0;
  const DeviceView& view = keys ? *list.k : *list.v;
  const uint64_t next = uint64_t{part.begin} + part.lag;
  FindExtremes(view, list.head, args.bad + list.first, next, next + part.lag, extremes);
  simt::SyncThreads();
  float* const out = (keys ? args.of_keys : args.of_values) + list.first;
  for (uint32_t r = simt::ThreadX() / 32; r < part.lag; r += kListThreads / 32) {
    const uint64_t row = uint64_t{part.begin} + r;
    const float deviation =
        Deviation(RowOf(view, list.head, row), keys ? list.k_wide : list.v_wide, extremes);
    if (simt::ThreadX() % 32 == 0) simt::Store(out + row, deviation);
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_CUH_
