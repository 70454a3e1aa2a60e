#include "kernels/cuda/launch.h"
#include "kernels/cuda/quality.cuh"

namespace kvtriage {
namespace {

template <size_t kShape>
cudaError_t Launch(const QualityItem* items, const QualityExtent& extent, cudaStream_t stream) {
  constexpr QualityShape kOf = kQualityShapes[kShape];
  constexpr uint32_t kSlots = (kOf.elems + kQualityThreads - 1) / kQualityThreads;
  LaunchShape shape;
  shape.blocks_x = (extent.units + kOf.rows - 1) / kOf.rows;
  shape.blocks_y = extent.heads;
  shape.blocks_z = extent.items;
  shape.threads = kQualityThreads;
  shape.shared_bytes = QualitySharedBytes(kOf, extent.dv, TilePitch(extent.elems));
  return LaunchKernel(MeasureRowsKernel<kOf.tokens, kOf.rows, kSlots>, shape, stream, items);
}

}  // namespace

cudaError_t LaunchQuality(const QualityItem* items, size_t shape, const QualityExtent& extent,
                          cudaStream_t stream) {
  switch (shape) {
    case 0:
      return Launch<0>(items, extent, stream);
    case 1:
      return Launch<1>(items, extent, stream);
    default:
      return Launch<2>(items, extent, stream);
  }
}

}  // namespace kvtriage
