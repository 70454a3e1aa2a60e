#include "kernels/cuda/launch.h"
#include "kernels/cuda/select.cuh"

namespace kvtriage {

cudaError_t LaunchSelect(const SelectSegment* segments, uint32_t count, cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks_x = count;
  shape.threads = kSelectThreads;
  shape.shared_bytes = kSelectSharedBytes;
  return LaunchKernel(SelectKernel, shape, stream, segments);
}

}  // namespace kvtriage
