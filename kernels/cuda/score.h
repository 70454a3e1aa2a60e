// ScoreRequest (kvtriage/kernels/score.h) on a device: all layers of a call, kind by kind, in one
// launch per stage.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_H_

#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// results[i] belongs to requests[i]. Views and tensors are of device memory; tables, limits,
// positions and ropes are the host's. Takes the whole workspace (resets it): requests that do not
// fit it together go in as few batches as do; DEVICE_MEMORY when one alone does not. Other failures
// as the CPU's: POLICY_INVALID, FIELD_MISSING, NO_USABLE_ROW. `stop` may be empty; it is asked
// before every batch, and an error of it ends the call. After a failure results are unspecified.
absl::Status CudaScoreLayers(std::span<const ScoreRequest> requests, Workspace& workspace,
                             const std::function<absl::Status()>& stop,
                             std::vector<ScoreResult>& results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_H_
