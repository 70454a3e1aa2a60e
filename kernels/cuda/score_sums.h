// Scores from ready-made column sums on a device.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// Scores and mass from AttentionSource::kColumnSums, before pooling: all kAttention, or all kVatp.
// DEVICE_MEMORY when the workspace is too small for all of them.
absl::Status CudaScoreSums(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_H_
