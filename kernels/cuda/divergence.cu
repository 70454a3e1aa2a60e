#include "kernels/cuda/divergence.cuh"
#include "kernels/cuda/launch.h"

namespace kvtriage {

cudaError_t LaunchDivergence(const DivergenceArgs& args, bool relative, bool wide,
                             cudaStream_t stream) {
  constexpr uint32_t kRows = kDivergenceThreads / 32;
  LaunchShape shape;
  shape.blocks_x = (args.count + kRows - 1) / kRows;
  shape.threads = kDivergenceThreads;
  if (relative) {
    return wide ? LaunchKernel(DivergeRowsKernel<true, true>, shape, stream, args)
                : LaunchKernel(DivergeRowsKernel<true, false>, shape, stream, args);
  }
  return wide ? LaunchKernel(DivergeRowsKernel<false, true>, shape, stream, args)
              : LaunchKernel(DivergeRowsKernel<false, false>, shape, stream, args);
}

}  // namespace kvtriage
