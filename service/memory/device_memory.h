// The memory of CUDA devices, for those who register, probe and look at it. No CUDA here:
// cuda_device.h makes them in builds that have it.
#ifndef KVTRIAGE_SERVICE_MEMORY_DEVICE_MEMORY_H_
#define KVTRIAGE_SERVICE_MEMORY_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/memory/mapper.h"
#include "service/memory/mapping.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

struct DeviceFacts {
  int ordinal = 0;   // this process's number of it
  std::string uuid;  // "GPU-..."
  std::string name;
  uint32_t compute_capability = 0;  // 90 for 9.0
  uint64_t memory_bytes = 0;
  uint32_t driver_version = 0;  // 13000 for 13.0
};

// Copies between the host and one device for its owner, one thread. The calls return when the bytes
// have arrived. DEVICE_LOST, DEVICE_MEMORY, INTERNAL.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;
  virtual absl::Status ToHost(std::span<std::byte> to, const std::byte* from) = 0;
  virtual absl::Status ToDevice(std::byte* to, std::span<const std::byte> from) = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual const DeviceFacts& facts() const = 0;
  // Opens and closes this device's allocations.
  virtual Mapper& mapper() = 0;

  // Mapper's thread. An allocation that the same `session` has open already, with the same
  // generation, is opened no second time. STALE_GENERATION, HANDLE_IN_USE (with a retry hint while
  // the other session's regions retire), PID_COLLISION, MAP_FAILED, PEER_UNSUPPORTED,
  // DEVICE_MEMORY, DEVICE_LOST, FINGERPRINT_MISMATCH; fields are those of RegionSpec.
  virtual absl::StatusOr<std::unique_ptr<Mapping>> Open(const RegionRequest& request,
                                                        const void* session) = 0;

  // For the calling thread, whose device is set.
  virtual absl::StatusOr<std::unique_ptr<DeviceCopier>> MakeCopier() = 0;
};

// The devices that are served. Fixed once made; thread-safe.
class DeviceList {
 public:
  // None. `why` is what a registration of device memory is told: NO_DEVICE.
  explicit DeviceList(absl::Status why) : why_none_(std::move(why)) {}
  explicit DeviceList(std::vector<std::unique_ptr<DeviceMemory>> devices)
      : devices_(std::move(devices)) {}

  DeviceIndex size() const { return static_cast<DeviceIndex>(devices_.size()); }
  DeviceMemory& at(DeviceIndex index) const { return *devices_[index - 1]; }  // 1 .. size()
  const absl::Status& why_none() const { return why_none_; }
  // NO_DEVICE, GPU_NOT_VISIBLE, MIG_UNSUPPORTED (only the GPU of the MIG instance is visible).
  absl::StatusOr<DeviceIndex> Find(std::string_view uuid) const;

 private:
  std::vector<std::unique_ptr<DeviceMemory>> devices_;
  absl::Status why_none_;
};

// Waits until registrations and closings that are under way are through: they go from mapper to
// mapper. Nothing new may begin.
void SettleMappers(Mapper& host, const DeviceList& devices);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_DEVICE_MEMORY_H_
