// Pooling of scores along the tokens, as Pool (kvtriage/kernels/score.h) describes, on a device.
#ifndef KVTRIAGE_KERNELS_CUDA_POOL_H_
#define KVTRIAGE_KERNELS_CUDA_POOL_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// Whether pooling changes a score at all.
bool Pools(const ScoreSpec& spec);

// Pools the scores of all results in place; one launch. DEVICE_MEMORY when the workspace is too
// small for all of them.
absl::Status CudaPoolScores(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_POOL_H_
