// Expected Attention on a device: moments, logits and norms there; turning the small matrices and
// the softmax are the host's (kernels/core/expected_rules.h).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// kExpectedAttention. Fills results but for nonfinite_tokens. Inputs as query_moments.h says.
// NO_USABLE_ROW (index = KV head) when no query head of a KV head has finite ones. DEVICE_MEMORY
// when the workspace is too small for all of them.
absl::Status CudaScoreExpected(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_H_
