// CriticalKV's weights of values on a device.
#ifndef KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_H_
#define KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// second_scores = n of kCritical (kvtriage/kernels/score.h), [KV heads, N]; not finite where V is
// not finite. DEVICE_MEMORY when the workspace is too small for all of them.
absl::Status CudaProjectValues(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_H_
