#include "kernels/cuda/launch.h"
#include "kernels/cuda/projected_norms.cuh"

namespace kvtriage {

cudaError_t LaunchProjectValues(const ProjectArgs& args, uint32_t pieces, cudaStream_t stream) {
  LaunchShape shape{.blocks_x = pieces, .threads = kProductThreads};
  shape.shared_bytes = kRowProductsSharedBytes;
  return LaunchKernel(ProjectValuesKernel, shape, stream, args);
}

}  // namespace kvtriage
