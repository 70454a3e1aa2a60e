#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_expected.cuh"

namespace kvtriage {

cudaError_t LaunchValueNorms(const ExpectedArgs& args, uint32_t pieces, cudaStream_t stream) {
  return LaunchKernel(ValueNormsKernel, {.blocks_x = pieces, .threads = kListThreads}, stream,
                      args);
}

cudaError_t LaunchExpectedLogits(const ExpectedArgs& args, uint32_t tiles, cudaStream_t stream) {
  LaunchShape shape{.blocks_x = tiles, .threads = kProductThreads};
  shape.shared_bytes = kRowProductsSharedBytes;
  return LaunchKernel(ExpectedLogitsKernel, shape, stream, args);
}

}  // namespace kvtriage
