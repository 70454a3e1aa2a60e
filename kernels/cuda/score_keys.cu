#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_keys.cuh"

namespace kvtriage {

cudaError_t LaunchKeyNorms(const KeyArgs& args, uint32_t pieces, cudaStream_t stream) {
  return LaunchKernel(KeyNormsKernel, {.blocks_x = pieces, .threads = kListThreads}, stream, args);
}

cudaError_t LaunchKeyDistances(const KeyArgs& args, uint32_t lists, uint32_t pieces,
                               cudaStream_t stream) {
  LaunchShape shape{.blocks_x = pieces, .threads = kListThreads};
  shape.shared_bytes = UnitSharedBytes(args.pitch);
  cudaError_t error = LaunchKernel(SumUnitKeysKernel, shape, stream, args);
  if (error != cudaSuccess) return error;
  shape = {.blocks_x = lists, .threads = kListThreads};
  shape.shared_bytes = kListThreads * sizeof(double);
  error = LaunchKernel(MeanUnitKeysKernel, shape, stream, args);
  if (error != cudaSuccess) return error;
  shape = {.blocks_x = pieces, .threads = kListThreads};
  return LaunchKernel(KeyDistancesKernel, shape, stream, args);
}

}  // namespace kvtriage
