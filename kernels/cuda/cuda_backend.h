// The kernels of one CUDA device as a Backend.
#ifndef KVTRIAGE_KERNELS_CUDA_CUDA_BACKEND_H_
#define KVTRIAGE_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/backend.h"

namespace kvtriage {

// Device memory; named "cuda:<ordinal>". Sets the calling thread's device; all calls come from that
// thread. Views and tensors of requests are of that device's memory, tables and lists the host's.
// Takes `arena_bytes` of device memory at once and no more later: DEVICE_MEMORY when there is not
// that much, and from a call that needs more; DEVICE_LOST when the context is gone for good;
// INTERNAL for an ordinal that the driver does not know.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int ordinal, uint64_t arena_bytes);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_CUDA_BACKEND_H_
