#include "tests/support/fake_cuda/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/memory.h"

namespace kvtriage::fake_cuda {
namespace {

thread_local int current_device = -1;
std::array<std::atomic<int>, kMaxDevices> sticky{};

std::mutex function_mutex;
std::map<const void*, size_t> shared_bytes_of;

}  // namespace

bool HasSetDevice() { return current_device >= 0; }
void SetNoDevice() { current_device = -1; }
int CurrentDevice() { return std::max(current_device, 0); }
cudaError_t StickyError() {
  return static_cast<cudaError_t>(sticky[static_cast<size_t>(CurrentDevice())].load());
}
void MakeSticky(cudaError_t error) { sticky[static_cast<size_t>(CurrentDevice())] = error; }
void ForgetSticky() {
  for (std::atomic<int>& one : sticky) one = cudaSuccess;
}

size_t SharedBytesAllowed(const void* function) {
  const std::lock_guard<std::mutex> lock(function_mutex);
  const auto found = shared_bytes_of.find(function);
  return found == shared_bytes_of.end() ? kSharedBytesByDefault : found->second;
}

namespace {

bool IsDevice(int device) { return device >= 0 && device < CurrentSettings().devices; }

}  // namespace
}  // namespace kvtriage::fake_cuda

using namespace kvtriage::fake_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  *count = CurrentSettings().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  if (!IsDevice(device)) return Leave(cudaErrorInvalidDevice);
  current_device = device;
  return Leave(StickyError());
}

cudaError_t cudaGetDevice(int* device) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  if (!IsDevice(device)) return Leave(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "fake device %d", device);
  // The same in every process: the ordinal is the only difference.
  std::memcpy(properties->uuid.bytes, "kvtriage-fake-d", 15);
  properties->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  if (!IsDevice(device)) return Leave(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 228 * 1024;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedBytesPerBlock);
      return cudaSuccess;
    case cudaDevAttrIpcEventSupport:
      *value = 1;
      return cudaSuccess;
    default:
      return Leave(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  const uint64_t memory = CurrentSettings().memory;
  *total = memory;
  *free = memory - std::min(memory, BytesInUse(CurrentDevice()));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  EnterCall(__func__, Needs::kNothing);
  *version = Folder().empty() ? 0 : 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  EnterCall(__func__, Needs::kNothing);
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (function == nullptr) return Leave(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kSharedBytesPerBlock) {
    return Leave(cudaErrorInvalidValue);
  }
  const std::lock_guard<std::mutex> lock(function_mutex);
  shared_bytes_of[function] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (function == nullptr) return Leave(cudaErrorInvalidDeviceFunction);
  if (threads < 1 || threads > 1024) return Leave(cudaErrorInvalidValue);
  const size_t by_threads = 2048 / static_cast<size_t>(threads);
  const size_t by_shared = 228 * 1024 / (shared_bytes + 1024);
  *blocks = static_cast<int>(std::min({by_threads, by_shared, size_t{32}}));
  return cudaSuccess;
}

}  // extern "C"
