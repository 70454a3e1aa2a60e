// MoveRequest (kvtriage/kernels/compact.h) on a device: one launch for all requests of a sequence.
#ifndef KVTRIAGE_KERNELS_CUDA_COMPACT_H_
#define KVTRIAGE_KERNELS_CUDA_COMPACT_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/compact.h"

namespace kvtriage {

// Views are of device memory, elements of known types aligned to their size (as registration asks
// for); tables and kept lists are the host's. Requests write disjoint rows.
// Returns when all rows have moved. Before the kernel has started nothing is written: DEVICE_MEMORY
// then leaves every byte as it was.
absl::Status CudaMoveRows(std::span<const MoveRequest> requests, Workspace& workspace,
                          MoveResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_COMPACT_H_
