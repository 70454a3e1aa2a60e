// CriticalKV on a device: attention decides first, then attention times what a value adds to the
// block's output.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_CRITICAL_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_CRITICAL_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// kCritical. Fills results but for pooling and nonfinite_tokens; second_scores hold n until
// FinishCritical (kernels/core/score_rules.h). Sources and failures as for CudaScoreQueries.
absl::Status CudaScoreCritical(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_CRITICAL_H_
