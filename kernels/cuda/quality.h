// QualityRequest (kvtriage/kernels/quality.h) on a device: all layers of a call in one launch per
// stage.
#ifndef KVTRIAGE_KERNELS_CUDA_QUALITY_H_
#define KVTRIAGE_KERNELS_CUDA_QUALITY_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/backend.h"
#include "kvtriage/kernels/quality.h"

namespace kvtriage {

// results[i] belongs to requests[i]. Views and tensors are of device memory; tables, limits and
// kept lists are the host's. `stop` is asked once per request before anything starts. Query rows
// that the workspace has no room for at once are measured in several rounds; DEVICE_MEMORY when it
// is too small for any.
absl::Status CudaMeasureLayers(std::span<const QualityRequest> requests, Workspace& workspace,
                               const StopCheck& stop, std::vector<QualityResult>& results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUALITY_H_
