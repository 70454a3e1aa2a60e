// Scores from the keys alone: their norms, and how far they point away from their mean. The mean is
// made of sums over fixed pieces, joined in order.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_CUH_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/list_rows.cuh"
#include "kernels/cuda/score_keys_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// By the lanes of a row: |k|, NaN for a bad row.
SIMT_DEVICE float KeyNorm(const DeviceList& list, const LaneRow& at) {
  float squares = 0.0f;
  const bool good =
      VisitRow(*list.k, list.k_wide, list.head, at, [&](uint32_t, float x) { squares += x * x; });
  squares = LaneSum(squares, at.lanes);
  return good ? sqrtf(squares) : NotANumber();
}

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) KeyNormsKernel(KeyArgs args) {
  const ListPiece piece = args.plan.pieces[simt::BlockX()];
  const DeviceList& list = args.plan.lists[piece.list];
  const uint32_t lanes = LanesFor(list.k->row_elems);
  ForRows(piece.first_row, RowsOfPiece(list, piece), lanes, [&](const LaneRow& at) {
    const float norm = KeyNorm(list, at);
    if (at.writes) simt::Store(args.scores + list.first + at.row, -norm);
  });
}

// A row on its way into the sums.
struct UnitRow {
  const std::byte* elems;
  float scale;
  float factor;  // 1 / |k|; 0 leaves a row out, whatever its elements are
};

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) SumUnitKeysKernel(KeyArgs args) {
  const simt::Shared<double> sums(simt::SharedMemory(0));
  const simt::Shared<UnitRow> tile(simt::SharedMemory(args.pitch * sizeof(double)));
  const ListPiece piece = args.plan.pieces[simt::BlockX()];
  const DeviceList& list = args.plan.lists[piece.list];
  const DeviceView& view = *list.k;
  const uint32_t rows = RowsOfPiece(list, piece), thread = simt::ThreadX();
  const uint32_t lanes = LanesFor(view.row_elems);
  for (uint32_t c = thread; c < view.row_elems; c += kListThreads) sums[c] = 0;
  uint32_t good = 0;
  for (uint32_t begin = 0; begin < rows; begin += kUnitTile) {
    const uint32_t count = rows - begin < kUnitTile ? rows - begin : kUnitTile;
    const uint64_t first = uint64_t{piece.first_row} + begin;
    ForRows(first, count, lanes, [&](const LaneRow& at) {
      const float norm = KeyNorm(list, at);
      if (!at.writes) return;
      const RowSide side = RowOf(view, list.head, at.row);
      tile[at.row - first] = {side.head, side.scale,
                              norm == norm ? 1.0f / fmaxf(norm, 1e-12f) : 0.0f};
    });
    simt::SyncThreads();
    for (uint32_t r = 0; r < count; ++r) good += tile[r].factor > 0.0f ? 1 : 0;
    for (uint32_t c = thread; c < view.row_elems; c += kListThreads) {
      float sum = 0.0f;
      for (uint32_t r = 0; r < count; ++r) {
        const UnitRow unit = tile[r];
        if (unit.factor > 0.0f) sum += Widened({&view, unit.elems, unit.scale}, c) * unit.factor;
      }
      sums[c] += sum;
    }
    simt::SyncThreads();
  }
  float* const out = args.sums + uint64_t{simt::BlockX()} * args.pitch;
  for (uint32_t c = thread; c < view.row_elems; c += kListThreads) {
    simt::Store(out + c, static_cast<float>(sums[c]));
  }
  if (thread == 0) simt::Store(args.good + simt::BlockX(), good);
}

// Grid: x lists. The mean of a list's unit keys, and its norm.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) MeanUnitKeysKernel(KeyArgs args) {
  const simt::Shared<double> squares(simt::SharedMemory(0));
  const DeviceList& list = args.plan.lists[simt::BlockX()];
  const uint32_t pieces = (list.rows + kPieceRows - 1) / kPieceRows, thread = simt::ThreadX();
  uint64_t good = 0;
  for (uint32_t p = 0; p < pieces; ++p) good += simt::Load(args.good + list.first_piece + p);
  const double rows = good > 0 ? static_cast<double>(good) : 1.0;
  double square = 0;
  for (uint32_t c = thread; c < list.k->row_elems; c += kListThreads) {
    double sum = 0;
    for (uint32_t p = 0; p < pieces; ++p) {
      sum += simt::Load(args.sums + (uint64_t{list.first_piece} + p) * args.pitch + c);
    }
    sum /= rows;
    square += sum * sum;
    simt::Store(args.means + uint64_t{simt::BlockX()} * args.pitch + c, static_cast<float>(sum));
  }
  squares[thread] = square;
  simt::SyncThreads();
  if (thread != 0) return;
  double total = 0;
  for (uint32_t i = 0; i < kListThreads; ++i) total += squares[i];
  simt::Store(args.norms + simt::BlockX(), static_cast<float>(sqrt(total)));
}

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) KeyDistancesKernel(KeyArgs args) {
  const ListPiece piece = args.plan.pieces[simt::BlockX()];
  const DeviceList& list = args.plan.lists[piece.list];
  const uint32_t lanes = LanesFor(list.k->row_elems);
  const float* const mean = args.means + uint64_t{piece.list} * args.pitch;
  const float mean_norm = simt::Load(args.norms + piece.list);
  ForRows(piece.first_row, RowsOfPiece(list, piece), lanes, [&](const LaneRow& at) {
    float squares = 0.0f, dot = 0.0f;
    const bool good = VisitRow(*list.k, list.k_wide, list.head, at, [&](uint32_t e, float x) {
      squares += x * x;
      dot += x * simt::Load(mean + e);
    });
    const float norm = sqrtf(LaneSum(squares, lanes));
    const float score = -LaneSum(dot, lanes) / fmaxf(norm * mean_norm, 1e-8f);
    if (at.writes) simt::Store(args.scores + list.first + at.row, good ? score : NotANumber());
  });
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_CUH_
