#include "kernels/cuda/launch.h"
#include "kernels/cuda/query_rows.cuh"

namespace kvtriage {

cudaError_t LaunchGatherRows(const QueryItem* items, size_t stride, uint32_t count,
                             uint32_t most_units, uint32_t most_heads, cudaStream_t stream) {
  constexpr uint32_t kUnits = kGatherThreads / 32;
  LaunchShape shape;
  shape.blocks_x = (most_units + kUnits - 1) / kUnits;
  shape.blocks_y = most_heads;
  shape.blocks_z = count;
  shape.threads = kGatherThreads;
  return LaunchKernel(GatherRowsKernel, shape, stream, reinterpret_cast<const std::byte*>(items),
                      stride);
}

}  // namespace kvtriage
