// Devices by UUID, without any CUDA.
#include <gtest/gtest.h>

#include "kernels/core/error.h"
#include "service/memory/device_memory.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

constexpr char kFirst[] = "GPU-00000000-1111-2222-3333-44444444aaaa";
constexpr char kSecond[] = "GPU-00000000-1111-2222-3333-44444444bbbb";

class NamedDevice final : public DeviceMemory {
 public:
  explicit NamedDevice(const char* uuid) { facts_.uuid = uuid; }
  const DeviceFacts& facts() const override { return facts_; }
  Mapper& mapper() override { return mapper_; }
  absl::StatusOr<std::unique_ptr<Mapping>> Open(const RegionRequest&, const void*) override {
    return absl::InternalError("not asked for");
  }
  absl::StatusOr<std::unique_ptr<DeviceCopier>> MakeCopier() override {
    return absl::InternalError("not asked for");
  }

 private:
  DeviceFacts facts_;
  Mapper mapper_;
};

DeviceList TwoDevices() {
  std::vector<std::unique_ptr<DeviceMemory>> devices;
  devices.push_back(std::make_unique<NamedDevice>(kFirst));
  devices.push_back(std::make_unique<NamedDevice>(kSecond));
  return DeviceList(std::move(devices));
}

TEST(DeviceList, CountsFromOne) {
  const DeviceList devices = TwoDevices();
  EXPECT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices.Find(kFirst).value(), 1u);
  EXPECT_EQ(devices.Find(kSecond).value(), 2u);
  EXPECT_EQ(devices.at(2).facts().uuid, kSecond);
}

TEST(DeviceList, LettersMayBeCapitals) {
  EXPECT_EQ(TwoDevices().Find("GPU-00000000-1111-2222-3333-44444444AAAA").value(), 1u);
}

TEST(DeviceList, AnInstanceThatIsTheVisibleDeviceIsFound) {
  EXPECT_EQ(TwoDevices().Find("MIG-00000000-1111-2222-3333-44444444bbbb").value(), 2u);
}

TEST(DeviceList, AnInstanceOfWhichOnlyTheGpuIsVisible) {
  const std::string uuid = "MIG-" + std::string(kSecond) + "/1/0";
  EXPECT_EQ(ReasonOf(TwoDevices().Find(uuid).status()), "mig_unsupported");
}

TEST(DeviceList, OthersAreNotVisible) {
  const DeviceList devices = TwoDevices();
  for (const char* uuid : {"GPU-00000000-1111-2222-3333-44444444cccc", "GPU-", "GPU",
                           "GPU-00000000-1111-2222-3333-44444444aaa",
                           "MIG-GPU-00000000-1111-2222-3333-44444444cccc/1/0"}) {
    SCOPED_TRACE(uuid);
    EXPECT_EQ(ReasonOf(devices.Find(uuid).status()), "gpu_not_visible");
  }
}

TEST(DeviceList, WithoutDevicesItSaysWhy) {
  const DeviceList devices(absl::Status(Error(ErrorReason::kNoDevice, "", "built without CUDA")));
  EXPECT_EQ(devices.size(), 0u);
  EXPECT_EQ(devices.Find(kFirst).status().message(), "built without CUDA");
}

}  // namespace
}  // namespace kvtriage
