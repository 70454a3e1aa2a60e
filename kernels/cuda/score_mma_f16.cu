#include "kernels/cuda/score_mma_launch.cuh"

namespace kvtriage {

cudaError_t LaunchScoreMmaF16(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream) {
  return LaunchMma<false>(term, items, sizes, stream);
}

}  // namespace kvtriage
