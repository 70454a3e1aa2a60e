// Scores from ready-made column sums, a thread a row; and weighing them by values.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/list_rows.cuh"
#include "kernels/cuda/score_sums_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) ReduceSumsKernel(SumsArgs args) {
  const ListPiece piece = args.pieces[simt::BlockX()];
  const SumsList& list = args.lists[piece.list];
  const uint32_t left = list.rows - piece.first_row;
  const uint32_t rows = left < kPieceRows ? left : kPieceRows;
  for (uint32_t r = simt::ThreadX(); r < rows; r += kListThreads) {
    const uint64_t row = uint64_t{piece.first_row} + r;
    float sum = 0.0f, largest = 0.0f;
    for (uint32_t h = 0; h < list.group; ++h) {
      const float x = TensorAt(list.sums, 0, list.first_head + h, row);
      sum += x;
      // A NaN of any head makes the maximum NaN, as it does the sum.
      if (h == 0 || x > largest || x != x) largest = largest != largest ? largest : x;
    }
    const float mean = sum / static_cast<float>(list.group);
    simt::Store(args.mass + list.first + row, sum == sum ? sum : 0.0f);
    simt::Store(args.scores + list.first + row, list.reduce == SumsReduce::kMax    ? largest
                                                : list.reduce == SumsReduce::kMean ? mean
                                                                                   : sum);
  }
}

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8)
    WeighByMagnitudeKernel(ListPlan plan, float* scores, float* mass) {
  const ListPiece piece = plan.pieces[simt::BlockX()];
  const DeviceList& list = plan.lists[piece.list];
  const uint32_t lanes = LanesFor(list.v->row_elems);
  ForRows(piece.first_row, RowsOfPiece(list, piece), lanes, [&](const LaneRow& at) {
    float sum = 0.0f;
    const bool good =
        VisitRow(*list.v, list.v_wide, list.head, at, [&](uint32_t, float x) { sum += fabsf(x); });
    sum = LaneSum(sum, lanes);
    if (!at.writes) return;
    const uint64_t place = list.first + at.row;
    simt::Store(scores + place, good ? simt::Load(scores + place) * sum : NotANumber());
    if (!good) simt::Store(mass + place, 0.0f);
  });
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_CUH_
