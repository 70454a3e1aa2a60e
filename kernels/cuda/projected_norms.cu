#include "kernels/cuda/launch.h"
#include "kernels/cuda/project_tensor.cuh"
#include "kernels/cuda/projected_norms.cuh"
#include "kernels/cuda/row_products_launch.h"

namespace kvtriage {
namespace {

// The values of a block, or two stages of W_O.
template <uint32_t kSteps>
constexpr size_t kTensorSharedBytes = size_t{kTensorTokens} * (kSteps * 32 + 16);

template <uint32_t kSteps, bool kHalf>
cudaError_t LaunchTensor(const ProjectArgs& args, uint32_t pieces, cudaStream_t stream) {
  static_assert(kTensorTokens == 2 * kTensorRows);
  LaunchShape shape{.blocks_x = pieces, .threads = kTensorThreads};
  shape.shared_bytes = kTensorSharedBytes<kSteps>;
  return LaunchKernel(ProjectTensorKernel<kSteps, kHalf>, shape, stream, args);
}

}  // namespace

cudaError_t LaunchProjectValues(ProjectPath path, const ProjectArgs& args, uint32_t pieces,
                                cudaStream_t stream) {
  switch (path) {
    case ProjectPath::kF16By64:
      return LaunchTensor<4, true>(args, pieces, stream);
    case ProjectPath::kF16By128:
      return LaunchTensor<8, true>(args, pieces, stream);
    case ProjectPath::kBF16By64:
      return LaunchTensor<4, false>(args, pieces, stream);
    case ProjectPath::kBF16By128:
      return LaunchTensor<8, false>(args, pieces, stream);
    case ProjectPath::kFloats:
      break;
  }
  LaunchShape shape{.blocks_x = pieces, .threads = kProductThreads};
  shape.shared_bytes = kRowProductsSharedBytes;
  return LaunchKernel(ProjectValuesKernel, shape, stream, args);
}

}  // namespace kvtriage
