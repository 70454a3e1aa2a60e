#include "kernels/cuda/workspace.h"

#include <chrono>
#include <optional>
#include <thread>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/cuda/cuda_status.h"

namespace kvtriage {
absl::StatusOr<std::unique_ptr<Workspace>> Workspace::Make(uint64_t bytes) {
  std::unique_ptr<Workspace> made(new Workspace(bytes));
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking),
                                "workspace.stream");
  void* memory = nullptr;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, bytes), "workspace.memory");
  made->memory_ = static_cast<std::byte*>(memory);
  int device = 0;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device), "workspace.device");
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&made->multiprocessors_, cudaDevAttrMultiProcessorCount, device),
      "workspace.device");
  return made;
}

// Errors cannot be reported here; a lost device is noticed by the next call on it.
Workspace::~Workspace() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  if (memory_ != nullptr) cudaFree(memory_);
}

absl::StatusOr<std::byte*> Workspace::TakeBytes(uint64_t count, uint64_t size) {
  const std::optional<uint64_t> bytes = CheckedMul(count, size);
  if (!bytes || *bytes > bytes_left()) {
    return Error(ErrorReason::kDeviceMemory, "workspace", "the call needs more working memory")
        .Got(bytes.value_or(~uint64_t{0}))
        .Limit(bytes_left());
  }
  std::byte* at = memory_ + used_;
  const uint64_t rounded = CeilDiv(*bytes, kAlignment) * kAlignment;
  used_ = rounded > bytes_left() ? bytes_ : used_ + rounded;
  return at;
}

absl::Status Workspace::Zero(void* to, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemsetAsync(to, 0, bytes, stream_), "workspace.zero");
}

absl::Status Workspace::ToDevice(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_),
                    "workspace.upload");
}

absl::Status Workspace::ToHost(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                                "workspace.download");
  return Finish();
}

absl::Status Workspace::Finish() {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state != cudaErrorNotReady) return CudaStatus(state, "workspace.finish");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace kvtriage
