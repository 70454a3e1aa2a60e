// LagKV on a device: rows ranked by how much their channels spread, measured with the rows that
// follow them. The ranking itself is the host's (kernels/core/lag_ranks.h).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// kLagKv. Fills results but for nonfinite_tokens. DEVICE_MEMORY when the workspace is too small for
// all of them.
absl::Status CudaScoreLagKv(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_H_
