// Copies and fills, with CUDA's rules for host memory: pageable sources are read at the call,
// pinned ones when the copy runs; a copy to pageable memory returns when it is done.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/stream.h"

using namespace kvtriage::fake_cuda;

namespace {

void CopyNow(void* to, const void* from, size_t bytes) {
  const Touching touching;
  std::memcpy(to, from, bytes);
}

cudaError_t ToDevice(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (!FindAllocation(to, bytes)) return cudaErrorInvalidValue;
  if (IsPinned(from)) {
    Enqueue(stream, [=] { CopyNow(to, from, bytes); });
    return cudaSuccess;
  }
  const auto* start = static_cast<const std::byte*>(from);
  auto staged = std::make_shared<std::vector<std::byte>>(start, start + bytes);
  Enqueue(stream, [=] { CopyNow(to, staged->data(), bytes); });
  return cudaSuccess;
}

cudaError_t ToHost(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (!FindAllocation(from, bytes)) return cudaErrorInvalidValue;
  std::memset(to, 0xFF, bytes);  // whoever reads too early reads NaN
  Enqueue(stream, [=] { CopyNow(to, from, bytes); });
  if (!IsPinned(to)) Drain(stream);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (bytes == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Leave(ToDevice(to, from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return Leave(ToHost(to, from, bytes, stream));
    case cudaMemcpyDeviceToDevice:
      if (!FindAllocation(to, bytes) || !FindAllocation(from, bytes)) {
        return Leave(cudaErrorInvalidValue);
      }
      Enqueue(stream, [=] { CopyNow(to, from, bytes); });
      return cudaSuccess;
    default:
      return Leave(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (!FindAllocation(pointer, bytes)) return Leave(cudaErrorInvalidValue);
  Enqueue(stream, [=] {
    const Touching touching;
    std::memset(pointer, value, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
