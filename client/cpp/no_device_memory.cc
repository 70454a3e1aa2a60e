// Device memory in a build without CUDA: there is none.
#include "client/cpp/local_error.h"
#include "kvtriage/device_memory.h"

namespace kvtriage::client {

class DeviceMemory::Allocation {};

namespace {

absl::Status NoDevice() {
  return LocalError(absl::StatusCode::kUnavailable, "no_device", "this program has no CUDA in it");
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices() { return NoDevice(); }

absl::StatusOr<RegionSpec> LendDeviceMemory(const void* /*pointer*/, uint64_t /*bytes*/,
                                            Access /*access*/, uint32_t /*tag*/) {
  return NoDevice();
}

// No object exists to call the others on.
absl::StatusOr<DeviceMemory> DeviceMemory::Create(int /*device*/, uint64_t /*bytes*/) {
  return NoDevice();
}
std::byte* DeviceMemory::data() const { return nullptr; }
uint64_t DeviceMemory::size() const { return 0; }
absl::Status DeviceMemory::Write(uint64_t /*offset*/, std::span<const std::byte> /*from*/) const {
  return NoDevice();
}
absl::Status DeviceMemory::Read(uint64_t /*offset*/, std::span<std::byte> /*to*/) const {
  return NoDevice();
}
absl::StatusOr<RegionSpec> DeviceMemory::Lend(uint64_t /*offset*/, uint64_t /*bytes*/,
                                              Access /*access*/, uint32_t /*tag*/) const {
  return NoDevice();
}

}  // namespace kvtriage::client
