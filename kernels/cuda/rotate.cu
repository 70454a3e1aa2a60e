#include "kernels/cuda/launch.h"
#include "kernels/cuda/rotate.cuh"

namespace kvtriage {

cudaError_t LaunchRotate(const RotateArgs& args, uint32_t lists, cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks_x = (args.count + kRotateRows - 1) / kRotateRows;
  shape.blocks_y = lists;
  shape.threads = kRotateThreads;
  shape.shared_bytes = RotateSharedBytes(args.pairs);
  return LaunchKernel(RotateKeysKernel, shape, stream, args);
}

}  // namespace kvtriage
