// SelectRequest (kvtriage/kernels/select.h) on a device: all lists of a call in one launch per
// stage.
#ifndef KVTRIAGE_KERNELS_CUDA_SELECT_H_
#define KVTRIAGE_KERNELS_CUDA_SELECT_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/select.h"

namespace kvtriage {

// results[i] belongs to requests[i]. Scores are the host's. DEVICE_MEMORY when the workspace is too
// small.
absl::Status CudaSelectLists(std::span<const SelectRequest> requests, Workspace& workspace,
                             std::vector<SelectResult>& results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SELECT_H_
