#include "kernels/cuda/launch.h"
#include "kernels/cuda/query_moments.cuh"

namespace kvtriage {

cudaError_t LaunchQueryMoments(const MomentArgs& args, uint32_t lists, uint32_t pieces,
                               uint32_t tiles, cudaStream_t stream) {
  LaunchShape shape{.blocks_x = pieces, .threads = kListThreads};
  shape.shared_bytes = MomentSharedBytes(args.pitch);
  cudaError_t error = LaunchKernel(SumQueriesKernel, shape, stream, args);
  if (error != cudaSuccess) return error;
  error =
      LaunchKernel(MeanQueriesKernel, {.blocks_x = lists, .threads = kListThreads}, stream, args);
  if (error != cudaSuccess) return error;
  shape = {.blocks_x = tiles, .threads = kProductThreads};
  shape.shared_bytes = kProductSharedBytes;
  return LaunchKernel(CovarianceKernel, shape, stream, args);
}

cudaError_t LaunchCopyMoments(const MomentArgs& args, uint32_t lists, cudaStream_t stream) {
  return LaunchKernel(CopyMomentsKernel, {.blocks_x = lists, .threads = kListThreads}, stream,
                      args);
}

}  // namespace kvtriage
