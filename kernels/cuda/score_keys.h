// Scores from the keys alone on a device: their norms, and how far they point away from their mean.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// All kKeyNorm, or all kKeyDiff. Fills results but for nonfinite_tokens. DEVICE_MEMORY when the
// workspace is too small for all of them.
absl::Status CudaScoreKeys(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_H_
