#include "kvtriage/device_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "client/cpp/cuda_calls.h"
#include "client/cpp/cuda_pointer.h"
#include "client/cpp/local_error.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr uint64_t kFingerprintBytes = 64;

absl::Status BadArgument(absl::StatusCode code, const char* text) {
  return LocalError(code, "bad_argument", text);
}

// As the driver's tools print it: 8-4-4-4-12 hexadecimal digits.
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

absl::StatusOr<CudaDevice> DeviceAt(int ordinal) {
  cudaDeviceProp properties;
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, ordinal),
                                       "cudaGetDeviceProperties");
  return CudaDevice{UuidText(properties.uuid), properties.name};
}

absl::StatusOr<CudaAllocation> Export(const ExportableAllocation& allocation) {
  CudaAllocation exported;
  cudaIpcMemHandle_t handle;
  static_assert(sizeof handle == sizeof exported.handle);
  const cudaError_t error = cudaIpcGetMemHandle(&handle, allocation.base);
  if (error == cudaErrorInvalidValue || error == cudaErrorNotSupported) {
    cudaGetLastError();
    return LocalError(absl::StatusCode::kFailedPrecondition, "vmm_memory",
                      "the driver exports no IPC handle of this memory: allocate the cache with "
                      "cudaMalloc; WSL2 and Tegra have no such handles at all");
  }
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(error, "cudaIpcGetMemHandle");
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  KVTRIAGE_ASSIGN_OR_RETURN(const CudaDevice device, DeviceAt(allocation.device));
  exported.device_uuid = device.uuid;
  exported.bytes = allocation.bytes;
  exported.generation = allocation.id;
  return exported;
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices() {
  int count = 0;
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) {
    return LocalError(absl::StatusCode::kUnavailable, "no_device", "CUDA shows no device");
  }
  std::vector<CudaDevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    KVTRIAGE_ASSIGN_OR_RETURN(devices.emplace_back(), DeviceAt(ordinal));
  }
  return devices;
}

absl::StatusOr<RegionSpec> LendDeviceMemory(const void* pointer, uint64_t bytes, Access access,
                                            uint32_t tag) {
  if (bytes == 0) return BadArgument(absl::StatusCode::kInvalidArgument, "0 bytes to lend");
  KVTRIAGE_ASSIGN_OR_RETURN(const ExportableAllocation allocation, FindAllocation(pointer));
  RegionSpec spec;
  spec.offset = static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - allocation.base);
  if (!RangeFits(spec.offset, bytes, allocation.bytes)) {
    return BadArgument(absl::StatusCode::kInvalidArgument,
                       "the memory to lend ends outside its allocation");
  }
  const OnDevice scope(allocation.device);
  KVTRIAGE_RETURN_IF_ERROR(scope.status());
  KVTRIAGE_ASSIGN_OR_RETURN(spec.cuda, Export(allocation));
  spec.size = bytes;
  spec.access = access;
  spec.tag = tag;
  RegionSpec::Fingerprint fingerprint;
  fingerprint.expected.resize(std::min(bytes, kFingerprintBytes));
  KVTRIAGE_RETURN_IF_ERROR(CopyAndWait(fingerprint.expected.data(), pointer,
                                       fingerprint.expected.size(), cudaMemcpyDeviceToHost));
  spec.fingerprint = std::move(fingerprint);
  return spec;
}

class DeviceMemory::Allocation {
 public:
  Allocation(int device, std::byte* data, uint64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() {
    const OnDevice scope(device_);
    cudaFree(data_);
  }
  int device() const { return device_; }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const int device_;
  std::byte* const data_;
  const uint64_t bytes_;
};

DeviceMemory::DeviceMemory(std::shared_ptr<const Allocation> allocation)
    : allocation_(std::move(allocation)) {}

absl::StatusOr<DeviceMemory> DeviceMemory::Create(int device, uint64_t bytes) {
  if (bytes == 0) return BadArgument(absl::StatusCode::kInvalidArgument, "0 bytes to allocate");
  const OnDevice scope(device);
  KVTRIAGE_RETURN_IF_ERROR(scope.status());
  void* memory = nullptr;
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, bytes), "cudaMalloc");
  return DeviceMemory(
      std::make_shared<const Allocation>(device, static_cast<std::byte*>(memory), bytes));
}

std::byte* DeviceMemory::data() const { return allocation_->data(); }
uint64_t DeviceMemory::size() const { return allocation_->bytes(); }

absl::Status DeviceMemory::Write(uint64_t offset, std::span<const std::byte> from) const {
  if (!RangeFits(offset, from.size(), size())) {
    return BadArgument(absl::StatusCode::kOutOfRange, "a write past the end of device memory");
  }
  const OnDevice scope(allocation_->device());
  KVTRIAGE_RETURN_IF_ERROR(scope.status());
  return CopyAndWait(data() + offset, from.data(), from.size(), cudaMemcpyHostToDevice);
}

absl::Status DeviceMemory::Read(uint64_t offset, std::span<std::byte> to) const {
  if (!RangeFits(offset, to.size(), size())) {
    return BadArgument(absl::StatusCode::kOutOfRange, "a read past the end of device memory");
  }
  const OnDevice scope(allocation_->device());
  KVTRIAGE_RETURN_IF_ERROR(scope.status());
  return CopyAndWait(to.data(), data() + offset, to.size(), cudaMemcpyDeviceToHost);
}

absl::StatusOr<RegionSpec> DeviceMemory::Lend(uint64_t offset, uint64_t bytes, Access access,
                                              uint32_t tag) const {
  if (!RangeFits(offset, bytes, size())) {
    return BadArgument(absl::StatusCode::kOutOfRange, "memory to lend past the end");
  }
  const OnDevice scope(allocation_->device());
  KVTRIAGE_RETURN_IF_ERROR(scope.status());
  KVTRIAGE_ASSIGN_OR_RETURN(RegionSpec spec, LendDeviceMemory(data() + offset, bytes, access, tag));
  spec.owner = allocation_;
  return spec;
}

}  // namespace kvtriage::client
