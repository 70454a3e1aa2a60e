#include "kernels/cuda/score_mma_launch.cuh"

namespace kvtriage {

cudaError_t LaunchScoreMmaBf16(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                               cudaStream_t stream) {
  return LaunchMma<true>(term, items, sizes, stream);
}

}  // namespace kvtriage
