// RowCopy (kvtriage/kernels/fuse.h) on a device: one launch for all copies.
#ifndef KVTRIAGE_KERNELS_CUDA_FUSE_H_
#define KVTRIAGE_KERNELS_CUDA_FUSE_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/fuse.h"

namespace kvtriage {

// Views are of device memory; tables and lists of rows are the host's. No two copies write the same
// row. Returns when all rows are written; DEVICE_MEMORY leaves every byte as it was.
absl::Status CudaCopyRows(std::span<const RowCopy> copies, Workspace& workspace,
                          RowCopyResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_FUSE_H_
