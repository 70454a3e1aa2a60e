#include "kernels/cuda/divergence.cuh"
#include "kernels/cuda/launch.h"

namespace kvtriage {

namespace {

template <DivergenceForm kForm>
cudaError_t Launch(const DivergenceArgs& args, bool wide, cudaStream_t stream) {
  constexpr uint32_t kRows = kDivergenceThreads / 32;
  LaunchShape shape;
  shape.blocks_x = (args.count + kRows - 1) / kRows;
  shape.threads = kDivergenceThreads;
  return wide ? LaunchKernel(DivergeRowsKernel<kForm, true>, shape, stream, args)
              : LaunchKernel(DivergeRowsKernel<kForm, false>, shape, stream, args);
}

}  // namespace

cudaError_t LaunchDivergence(const DivergenceArgs& args, DivergenceForm form, bool wide,
                             cudaStream_t stream) {
  switch (form) {
    case DivergenceForm::kL2:
      return Launch<DivergenceForm::kL2>(args, wide, stream);
    case DivergenceForm::kRelative:
      return Launch<DivergenceForm::kRelative>(args, wide, stream);
    case DivergenceForm::kApart:
      return Launch<DivergenceForm::kApart>(args, wide, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kvtriage
