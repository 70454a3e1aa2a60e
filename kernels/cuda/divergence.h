// DivergenceRequest (kvtriage/kernels/divergence.h) on a device.
#ifndef KVTRIAGE_KERNELS_CUDA_DIVERGENCE_H_
#define KVTRIAGE_KERNELS_CUDA_DIVERGENCE_H_

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/divergence.h"

namespace kvtriage {

// Views are of device memory; tables and the list of rows are the host's. Writes nothing of the
// caller's. DEVICE_MEMORY when the workspace is too small.
absl::Status CudaDivergeRows(const DivergenceRequest& request, Workspace& workspace,
                             DivergenceResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DIVERGENCE_H_
