// CUDA's error numbers as our Status. The one place that knows them.
#ifndef KVTRIAGE_KERNELS_CUDA_CUDA_STATUS_H_
#define KVTRIAGE_KERNELS_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "kernels/cuda/cuda_api.h"

namespace kvtriage {

// Whether the context is lost for good: every later call will fail, and the process has to end.
bool IsSticky(cudaError_t error);

// OK; DEVICE_MEMORY (2); DEVICE_LOST (sticky); else INTERNAL. `call` is a constant of ours that
// says what was done; the number goes along, CUDA's text never does.
absl::Status CudaStatus(cudaError_t error, const char* call);

}  // namespace kvtriage

#define KVTRIAGE_RETURN_IF_CUDA_ERROR(expression, call)         \
  do {                                                          \
    const cudaError_t kvtriage_cuda_error = (expression);       \
    if (kvtriage_cuda_error != cudaSuccess) {                   \
      return ::kvtriage::CudaStatus(kvtriage_cuda_error, call); \
    }                                                           \
  } while (false)

#endif  // KVTRIAGE_KERNELS_CUDA_CUDA_STATUS_H_
