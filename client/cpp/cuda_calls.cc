#include "client/cpp/cuda_calls.h"

#include <chrono>
#include <string>
#include <thread>

#include "client/cpp/local_error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

cudaError_t WaitFor(cudaStream_t stream) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return state;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

absl::Status FromCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string text = std::string(call) + ": CUDA error " + std::to_string(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return LocalError(absl::StatusCode::kResourceExhausted, "device_memory", text);
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return LocalError(absl::StatusCode::kUnavailable, "no_device", text);
    default:
      return LocalError(absl::StatusCode::kInternal, "cuda_call", text);
  }
}

OnDevice::OnDevice(int device) : device_(device), before_(device) {
  status_ = FromCuda(cudaGetDevice(&before_), "cudaGetDevice");
  if (status_.ok()) status_ = FromCuda(cudaSetDevice(device), "cudaSetDevice");
}

OnDevice::~OnDevice() {
  if (before_ != device_) cudaSetDevice(before_);
}

absl::Status CopyAndWait(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
  cudaStream_t stream = nullptr;
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                       "cudaStreamCreateWithFlags");
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, stream);
  if (error == cudaSuccess) error = WaitFor(stream);
  const absl::Status copied = FromCuda(error, "cudaMemcpyAsync");
  cudaStreamDestroy(stream);
  return copied;
}

}  // namespace kvtriage::client
