// How much a value vector adds to the output of its attention block: |W_O v|_1, the mean over the
// query heads of a group.
#ifndef KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_CUH_
#define KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/projected_norms_launch.h"
#include "kernels/cuda/row_products.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Grid: x pieces.
SIMT_KERNEL void SIMT_BOUNDS(kProductThreads, 3) ProjectValuesKernel(ProjectArgs args) {
  const RowProductsShared shared = RowProductsMemory();
  const ListPiece piece = args.pieces[simt::BlockX()];
  const DeviceList& list = args.lists[piece.list];
  const ListProjection& projection = args.projections[piece.list];
  FindTokens(shared, *list.v, list.head, piece.first_row, list.rows);
  simt::SyncThreads();
  double sums[4] = {};
  for (uint32_t h = 0; h < projection.group; ++h) {
    FoldRowProducts(
        shared, *list.v, projection.hidden,
        [&](uint32_t r, uint32_t c) {
          return TensorAt(projection.weights, r, projection.first_head + h, c);
        },
        [&](uint32_t, const float(&products)[4][4]) {
          SIMT_UNROLL
          for (uint32_t j = 0; j < 4; ++j) {
            sums[j] += (fabsf(products[0][j]) + fabsf(products[1][j])) +
                       (fabsf(products[2][j]) + fabsf(products[3][j]));
          }
        });
  }
  JoinTokenSums(shared, sums, [&](uint32_t t, double total) {
    const uint64_t row = uint64_t{piece.first_row} + t;
    if (row >= list.rows) return;
    simt::Store(args.norms + list.first + row, static_cast<float>(total / projection.group));
  });
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_CUH_
