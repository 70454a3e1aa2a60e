// A device whose memory is this process's own at addresses that fault: whoever reads or writes it
// outside the device's kernels and copies ends the test.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_FAR_MEMORY_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_FAR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "service/engine/lane_device.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

class FarDevice final : public DeviceMemory {
 public:
  explicit FarDevice(uint32_t number);
  const DeviceFacts& facts() const override { return facts_; }
  Mapper& mapper() override { return mapper_; }
  absl::StatusOr<std::unique_ptr<Mapping>> Open(const RegionRequest& request,
                                                const void* session) override;
  absl::StatusOr<std::unique_ptr<DeviceCopier>> MakeCopier() override;

  // `bytes` of this process as an allocation of the device.
  RegionRequest Lend(std::byte* memory, uint64_t bytes, bool writable) const;
  // `kernels` for this device. They never see a host address where a device's belongs.
  DeviceLane Lane(std::function<std::unique_ptr<Backend>()> kernels) const;

 private:
  DeviceFacts facts_;
  Mapper mapper_;
};

// `count` of them.
DeviceList FarDevices(uint32_t count);

// While one lives, every `Lent` (engine_world.h) lies on the device.
class LendOn {
 public:
  explicit LendOn(const FarDevice& device) { current = &device; }
  ~LendOn() { current = nullptr; }
  LendOn(const LendOn&) = delete;
  LendOn& operator=(const LendOn&) = delete;

  static const FarDevice* current;  // null: in memory files
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_FAR_MEMORY_H_
