// Memory of a CUDA device that can be lent: what cudaMalloc made, exported by its IPC handle. A
// program that uses this links one of kvtriage_client_cuda (the CUDA runtime) and
// kvtriage_client_no_cuda (every function answers no_device); the rest of the client needs neither.
//
// The caller frees lent memory only after Unregister has answered OK: the service has closed its
// mapping then, and freeing before is undefined behaviour by CUDA's own rules. Or it leaves that to
// RegionSpec::owner, as DeviceMemory does.
#ifndef KVTRIAGE_CLIENT_DEVICE_MEMORY_H_
#define KVTRIAGE_CLIENT_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::client {

struct CudaDevice {
  std::string uuid;  // "GPU-...": the same in every process, unlike the ordinal
  std::string name;
};

// What CUDA shows this process, by ordinal; never empty. Takes no memory of a device. UNAVAILABLE
// (no_device) without a device or a driver, and in a build without CUDA.
absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices();

// [pointer, pointer + bytes) as something to register, with a fingerprint of its first bytes: until
// Register has returned, nothing may write there. The driver is asked for the rest, so `pointer`
// may lie anywhere in an allocation (a tensor of an engine's segment). The service maps the whole
// allocation and touches the lent bytes only. The calling thread has set the memory's device.
//
// FAILED_PRECONDITION (vmm_memory) for memory that no handle exports, with its kind (virtual memory
// management, a stream-ordered pool, managed memory) and the setting to change. INVALID_ARGUMENT
// (bad_argument) when it is not device memory or ends outside its allocation; UNAVAILABLE
// (no_device); INTERNAL (cuda_call) with CUDA's number. Nothing was sent in any of these cases.
absl::StatusOr<RegionSpec> LendDeviceMemory(const void* pointer, uint64_t bytes,
                                            Access access = Access::kReadWrite, uint32_t tag = 0);

// An allocation of its own on a device, for programs that have no other. Any thread may call; no
// call changes the thread's device. Copyable: the memory is freed with the last copy and the last
// registration of it.
class DeviceMemory {
 public:
  // `bytes` (> 0) with undefined content. RESOURCE_EXHAUSTED (device_memory), UNAVAILABLE
  // (no_device), INTERNAL (cuda_call).
  static absl::StatusOr<DeviceMemory> Create(int device, uint64_t bytes);

  std::byte* data() const;  // in the device's memory
  uint64_t size() const;

  // Copies, done when they return. OUT_OF_RANGE (bad_argument) past the end, INTERNAL (cuda_call).
  absl::Status Write(uint64_t offset, std::span<const std::byte> from) const;
  absl::Status Read(uint64_t offset, std::span<std::byte> to) const;

  // A part as something to register; registered, it keeps the memory. As LendDeviceMemory.
  absl::StatusOr<RegionSpec> Lend(uint64_t offset, uint64_t bytes,
                                  Access access = Access::kReadWrite, uint32_t tag = 0) const;

 private:
  class Allocation;
  explicit DeviceMemory(std::shared_ptr<const Allocation> allocation);

  std::shared_ptr<const Allocation> allocation_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_DEVICE_MEMORY_H_
