#include "service/memory/cuda_copier.h"

#include <chrono>
#include <thread>

#include "kernels/cuda/cuda_status.h"

namespace kvtriage {

absl::StatusOr<std::unique_ptr<CudaCopier>> CudaCopier::Make() {
  cudaStream_t stream = nullptr;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                "copier.stream");
  return std::unique_ptr<CudaCopier>(new CudaCopier(stream));
}

CudaCopier::~CudaCopier() { cudaStreamDestroy(stream_); }

absl::Status CudaCopier::ToHost(std::span<std::byte> to, const std::byte* from) {
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_), "copier.read");
  return Finish();
}

absl::Status CudaCopier::ToDevice(std::byte* to, std::span<const std::byte> from) {
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_),
      "copier.write");
  return Finish();
}

// Polled: a wait in the driver would have no end.
absl::Status CudaCopier::Finish() {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state != cudaErrorNotReady) return CudaStatus(state, "copier.finish");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool CudaCopier::StaysIn(cudaError_t error) const {
  if (error == cudaSuccess) return false;
  return IsSticky(error) || cudaStreamQuery(stream_) == error;
}

}  // namespace kvtriage
