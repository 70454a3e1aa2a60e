#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_lagkv.cuh"

namespace kvtriage {

cudaError_t LaunchLagDeviations(const LagArgs& args, uint32_t pieces, uint32_t partitions,
                                cudaStream_t stream) {
  LaunchShape shape{.blocks_x = pieces, .threads = kListThreads};
  const cudaError_t error = LaunchKernel(MarkBadRowsKernel, shape, stream, args);
  if (error != cudaSuccess || partitions == 0) return error;
  shape = {.blocks_x = partitions, .blocks_y = 2, .threads = kListThreads};
  shape.shared_bytes = LagSharedBytes(args.most_elems);
  return LaunchKernel(LagDeviationsKernel, shape, stream, args);
}

}  // namespace kvtriage
