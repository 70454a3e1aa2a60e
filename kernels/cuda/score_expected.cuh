// Expected Attention's pass over the cache: the logits that a distribution of queries gives to
// keys, and the norms of values.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/row_products.cuh"
#include "kernels/cuda/score_expected_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kListThreads, 8) ValueNormsKernel(ExpectedArgs args) {
  const ListPiece piece = args.plan.pieces[simt::BlockX()];
  const DeviceList& list = args.plan.lists[piece.list];
  const uint32_t k_elems = list.k->row_elems, v_elems = list.v->row_elems;
  const uint32_t lanes = LanesFor(k_elems > v_elems ? k_elems : v_elems);
  ForRows(piece.first_row, RowsOfPiece(list, piece), lanes, [&](const LaneRow& at) {
    float squares = 0.0f;
    const bool k = VisitRow(*list.k, list.k_wide, list.head, at, [](uint32_t, float) {});
    const bool v =
        VisitRow(*list.v, list.v_wide, list.head, at, [&](uint32_t, float x) { squares += x * x; });
    const float norm = sqrtf(LaneSum(squares, lanes));
    if (at.writes) simt::Store(args.norms + list.first + at.row, k && v ? norm : NotANumber());
  });
}

// Grid: x tiles.
SIMT_KERNEL void SIMT_BOUNDS(kProductThreads, 3) ExpectedLogitsKernel(ExpectedArgs args) {
  const RowProductsShared shared = RowProductsMemory();
  const ListPiece tile = args.tiles[simt::BlockX()];
  const DeviceList& list = args.plan.lists[tile.list];
  const DeviceView& view = *list.k;
  FindTokens(shared, view, list.head, tile.first_row, list.rows);
  simt::SyncThreads();
  for (uint32_t f = args.first_form[tile.list]; f < args.first_form[tile.list + 1]; ++f) {
    const QueryForm& form = args.forms[f];
    if (form.usable == 0) continue;
    double sums[4] = {};
    FoldRowProducts(
        shared, view, view.row_elems,
        [&](uint32_t r, uint32_t c) {
          return simt::Load(form.quadratic + uint64_t{r} * view.row_elems + c);
        },
        // k.(linear + quadratic k)
        [&](uint32_t r0, const float(&products)[4][4]) {
          SIMT_UNROLL
          for (uint32_t j = 0; j < 4; ++j) {
            float sum = 0.0f;
            SIMT_UNROLL
            for (uint32_t i = 0; i < 4; ++i) {
              const uint32_t r = r0 + FirstOfA() + i;
              if (r >= view.row_elems) continue;
              const float k = TokenElement(shared, view, FirstOfB() + j, r);
              sum += (products[i][j] + simt::Load(form.linear + r)) * k;
            }
            sums[j] += sum;
          }
        });
    JoinTokenSums(shared, sums, [&](uint32_t t, double total) {
      const uint64_t row = uint64_t{tile.first_row} + t;
      if (row < list.rows) simt::Store(form.logits + row, static_cast<float>(total));
    });
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_CUH_
