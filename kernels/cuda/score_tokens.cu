#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_tokens.cuh"

namespace kvtriage {

cudaError_t LaunchScoreTokens(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks_x = sizes.tiles;
  shape.blocks_y = sizes.heads;
  shape.blocks_z = sizes.items;
  shape.threads = kScoreThreads;
  shape.shared_bytes = (sizes.key_bytes + sizes.value_bytes + 15) / 16 * 16 +
                       size_t{kMostTileTokens} * 4 + size_t{kScoreThreads} * 4;
  switch (term) {
    case ScoreTerm::kMass:
      return LaunchKernel(ScoreTokensKernel<ScoreTerm::kMass>, shape, stream, items);
    case ScoreTerm::kValue:
      return LaunchKernel(ScoreTokensKernel<ScoreTerm::kValue>, shape, stream, items);
    case ScoreTerm::kKey:
      return LaunchKernel(ScoreTokensKernel<ScoreTerm::kKey>, shape, stream, items);
    case ScoreTerm::kJoint:
      return LaunchKernel(ScoreTokensKernel<ScoreTerm::kJoint>, shape, stream, items);
    case ScoreTerm::kDrop:
      return LaunchKernel(ScoreTokensKernel<ScoreTerm::kDrop>, shape, stream, items);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kvtriage
