// Mean and covariance of the queries of every head. Sums over fixed pieces, joined in order;
// centred products are added up tile by tile of rows and what rounding loses is carried along.
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_CUH_
#define KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/product_tile.cuh"
#include "kernels/cuda/query_moments_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// By a whole warp: whether all elements of a query are finite.
SIMT_DEVICE bool QueryIsGood(const QueryList& list, uint64_t row) {
  bool good = true;
  for (uint32_t e = simt::ThreadX() % 32; e < list.elems; e += 32) {
    good = good && IsFinite(TensorAt(list.q, list.first_row + row, list.head, e));
  }
  return simt::Ballot(simt::kAllLanes, !good) == 0;
}

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) SumQueriesKernel(MomentArgs args) {
  const simt::Shared<double> sums(simt::SharedMemory(0));
  const simt::Shared<uint32_t> is_good(simt::SharedMemory(args.pitch * sizeof(double)));
  const ListPiece piece = args.pieces[simt::BlockX()];
  const QueryList& list = args.lists[piece.list];
  const uint32_t thread = simt::ThreadX(), left = list.rows - piece.first_row;
  const uint32_t rows = left < kPieceRows ? left : kPieceRows;
  for (uint32_t c = thread; c < list.elems; c += kListThreads) sums[c] = 0;
  uint32_t good = 0;
  for (uint32_t begin = 0; begin < rows; begin += kMomentTile) {
    const uint32_t count = rows - begin < kMomentTile ? rows - begin : kMomentTile;
    const uint64_t first = uint64_t{piece.first_row} + begin;
    for (uint32_t r = thread / 32; r < count; r += kListThreads / 32) {
      const bool is = QueryIsGood(list, first + r);
      if (thread % 32 != 0) continue;
      is_good[r] = is ? 1 : 0;
      simt::Store(args.is_good + list.first + first + r, static_cast<uint8_t>(is ? 1 : 0));
    }
    simt::SyncThreads();
    for (uint32_t r = 0; r < count; ++r) good += is_good[r];
    for (uint32_t c = thread; c < list.elems; c += kListThreads) {
      float sum = 0.0f;
      for (uint32_t r = 0; r < count; ++r) {
        if (is_good[r] != 0) sum += TensorAt(list.q, list.first_row + first + r, list.head, c);
      }
      sums[c] += sum;
    }
    simt::SyncThreads();
  }
  float* const out = args.sums + uint64_t{simt::BlockX()} * args.pitch;
  for (uint32_t c = thread; c < list.elems; c += kListThreads) {
    simt::Store(out + c, static_cast<float>(sums[c]));
  }
  if (thread == 0) simt::Store(args.good + simt::BlockX(), good);
}

// Grid: x lists.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) MeanQueriesKernel(MomentArgs args) {
  const QueryList& list = args.lists[simt::BlockX()];
  if (list.given.base != nullptr) return;
  const uint32_t pieces = (list.rows + kPieceRows - 1) / kPieceRows, thread = simt::ThreadX();
  uint32_t good = 0;
  for (uint32_t p = 0; p < pieces; ++p) good += simt::Load(args.good + list.first_piece + p);
  for (uint32_t c = thread; c < list.elems; c += kListThreads) {
    double sum = 0;
    for (uint32_t p = 0; p < pieces; ++p) {
      sum += simt::Load(args.sums + (uint64_t{list.first_piece} + p) * args.pitch + c);
    }
    simt::Store(args.means + list.mean + c, sum / (good > 0 ? good : 1));
  }
  if (thread == 0) simt::Store(args.counts + simt::BlockX(), good);
}

// Adds x to a sum whose lost digits are kept apart.
SIMT_DEVICE void AddKeeping(float x, float* sum, float* lost) {
  const float corrected = x - *lost;
  const float next = *sum + corrected;
  *lost = (next - *sum) - corrected;
  *sum = next;
}

// Grid: x tiles.
SIMT_KERNEL void SIMT_BOUNDS(kProductThreads, 2) CovarianceKernel(MomentArgs args) {
  const ProductTiles operands = TilesAt(0);
  const CovarianceTile tile = args.tiles[simt::BlockX()];
  const QueryList& list = args.lists[tile.list];
  const auto centred = [&](uint32_t row, uint32_t c) {
    if (row >= list.rows || c >= list.elems) return 0.0f;
    if (simt::Load(args.is_good + list.first + row) == 0) return 0.0f;
    const float x = TensorAt(list.q, uint64_t{list.first_row} + row, list.head, c);
    return static_cast<float>(x - simt::Load(args.means + list.mean + c));
  };
  float sums[4][4] = {}, lost[4][4] = {};
  for (uint32_t row = 0; row < list.rows; row += kProductSteps) {
    LoadBySteps(operands.a,
                [&](uint32_t i, uint32_t step) { return centred(row + step, tile.row + i); });
    LoadBySteps(operands.b,
                [&](uint32_t i, uint32_t step) { return centred(row + step, tile.column + i); });
    simt::SyncThreads();
    float products[4][4] = {};
    MultiplyTiles(operands, products);
    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      SIMT_UNROLL
      for (uint32_t j = 0; j < 4; ++j) AddKeeping(products[i][j], &sums[i][j], &lost[i][j]);
    }
    simt::SyncThreads();
  }
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    SIMT_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t r = tile.row + FirstOfA() + i, c = tile.column + FirstOfB() + j;
      if (r >= list.elems || c >= list.elems) continue;
      simt::Store(args.covariances + list.covariance + uint64_t{r} * list.elems + c, sums[i][j]);
    }
  }
}

// Grid: x lists.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) CopyMomentsKernel(MomentArgs args) {
  const QueryList& list = args.lists[simt::BlockX()];
  if (list.given.base == nullptr) return;
  for (uint32_t c = simt::ThreadX(); c < list.elems; c += kListThreads) {
    simt::Store(args.means + list.mean + c, static_cast<double>(TensorAt(list.q, 0, list.head, c)));
  }
  for (uint32_t i = simt::ThreadX(); i < list.elems * list.elems; i += kListThreads) {
    simt::Store(args.covariances + list.covariance + i,
                TensorAt(list.given, i / list.elems, list.head, i % list.elems));
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_CUH_
