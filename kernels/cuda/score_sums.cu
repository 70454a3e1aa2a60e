#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_sums.cuh"

namespace kvtriage {

cudaError_t LaunchReduceSums(const SumsArgs& args, uint32_t pieces, cudaStream_t stream) {
  return LaunchKernel(ReduceSumsKernel, {.blocks_x = pieces, .threads = kListThreads}, stream,
                      args);
}

cudaError_t LaunchWeighByMagnitude(const ListPlan& plan, uint32_t pieces, float* scores,
                                   float* mass, cudaStream_t stream) {
  return LaunchKernel(WeighByMagnitudeKernel, {.blocks_x = pieces, .threads = kListThreads}, stream,
                      plan, scores, mass);
}

}  // namespace kvtriage
