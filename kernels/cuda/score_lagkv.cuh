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
  const uint32_t k_elems = list.k->row_elems, v_elems = list.v->row_elems;
  const uint32_t lanes = LanesFor(k_elems > v_elems ? k_elems : v_elems);
  ForRows(piece.first_row, RowsOfPiece(list, piece), lanes, [&](const LaneRow& at) {
    const auto nothing = [](uint32_t, float) {};
    const bool k = VisitRow(*list.k, list.k_wide, list.head, at, nothing);
    const bool v = VisitRow(*list.v, list.v_wide, list.head, at, nothing);
    if (at.writes) simt::Store(args.bad + list.first + at.row, k && v ? 0.0f : NotANumber());
  });
}

// The least and the largest of every channel.
struct Extremes {
  simt::Shared<float> low, high;
  uint32_t pitch;

  SIMT_DEVICE uint32_t Place(uint32_t channel) const {
    return channel % kPieceElems * pitch + channel / kPieceElems;
  }
};

// A row that takes part in the extremes.
struct LagRow {
  const std::byte* elems;  // null: a bad row, which does not
  float scale;
};

// By all threads: extremes of every channel over the good rows of [begin, end); +Inf and -Inf
// without any. Needs a barrier behind.
SIMT_DEVICE void FindExtremes(const DeviceView& view, uint32_t head, const float* bad,
                              uint64_t begin, uint64_t end, const simt::Shared<LagRow>& tile,
                              const Extremes& extremes) {
  const uint32_t thread = simt::ThreadX();
  for (uint32_t c = thread; c < view.row_elems; c += kListThreads) {
    extremes.low[extremes.Place(c)] = INFINITY;
    extremes.high[extremes.Place(c)] = -INFINITY;
  }
  for (uint64_t first = begin; first < end; first += kLagTile) {
    const uint32_t count = end - first < kLagTile ? static_cast<uint32_t>(end - first) : kLagTile;
    if (thread < count) {
      const RowSide side = RowOf(view, head, first + thread);
      tile[thread] = {simt::Load(bad + first + thread) == 0.0f ? side.head : nullptr, side.scale};
    }
    simt::SyncThreads();
    for (uint32_t c = thread; c < view.row_elems; c += kListThreads) {
      float low = extremes.low[extremes.Place(c)], high = extremes.high[extremes.Place(c)];
      for (uint32_t r = 0; r < count; ++r) {
        const LagRow row = tile[r];
        if (row.elems == nullptr) continue;
        const float x = Widened({&view, row.elems, row.scale}, c);
        low = fminf(low, x);
        high = fmaxf(high, x);
      }
      extremes.low[extremes.Place(c)] = low;
      extremes.high[extremes.Place(c)] = high;
    }
    simt::SyncThreads();
  }
}

// By the lanes of a row: the sample deviation of y = (x - low) / (high - low) over the channels of
// a row, y = 0 where high is not above low. The row is read twice rather than kept.
SIMT_DEVICE float Deviation(const DeviceView& view, uint32_t wide, uint32_t head, const LaneRow& at,
                            const Extremes& extremes) {
  const auto spread = [&](uint32_t c, float x) {
    const float low = extremes.low[extremes.Place(c)];
    const float width = extremes.high[extremes.Place(c)] - low;
    return width > 0.0f ? (x - low) / width : 0.0f;
  };
  const uint32_t elems = view.row_elems;
  float sum = 0.0f, squares = 0.0f;
  VisitRow(view, wide, head, at, [&](uint32_t c, float x) { sum += spread(c, x); });
  const float mean = LaneSum(sum, at.lanes) / static_cast<float>(elems);
  VisitRow(view, wide, head, at, [&](uint32_t c, float x) {
    const float off = spread(c, x) - mean;
    squares += off * off;
  });
  return sqrtf(LaneSum(squares, at.lanes) / static_cast<float>(elems > 1 ? elems - 1 : 1));
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
  const simt::Shared<LagRow> tile(simt::SharedMemory(size_t{2} * 8 * pitch * sizeof(float)));
  FindExtremes(view, list.head, args.bad + list.first, next, next + part.lag, tile, extremes);
  float* const out = (keys ? args.of_keys : args.of_values) + list.first;
  const uint32_t lanes = LanesFor(view.row_elems), wide = keys ? list.k_wide : list.v_wide;
  ForRows(part.begin, part.lag, lanes, [&](const LaneRow& at) {
    const float deviation = Deviation(view, wide, list.head, at, extremes);
    if (at.writes) simt::Store(out + at.row, deviation);
  });
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_CUH_
