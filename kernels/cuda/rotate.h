// RotateRequest (kvtriage/kernels/rotate.h) on a device: one launch for all layers of a request.
#ifndef KVTRIAGE_KERNELS_CUDA_ROTATE_H_
#define KVTRIAGE_KERNELS_CUDA_ROTATE_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/rotate.h"

namespace kvtriage {

// Keys are of device memory; tables, positions and lists are the host's. No two requests share a
// row. Returns when all keys are turned. DEVICE_MEMORY leaves the keys of that request as they
// were.
absl::Status CudaRotateKeys(std::span<const RotateRequest> requests, Workspace& workspace,
                            RotateResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROTATE_H_
