// A session that lends memory of the stand-in's devices, and what is open there.
#ifndef KVTRIAGE_TESTS_UNIT_MEMORY_CUDA_LENDER_H_
#define KVTRIAGE_TESTS_UNIT_MEMORY_CUDA_LENDER_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service/memory/cuda_device.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/reason_of.h"
#include "tests/unit/fake_cuda/exporter_process.h"
#include "tests/unit/memory/lender.h"

namespace kvtriage {

inline constexpr uint64_t kExported = 4096;  // bytes of an exporter's allocation

// The allocation begins with this number.
inline std::string FirstBytes(float value = 42) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

class CudaLending : public testing::Test {
 protected:
  CudaLending() { FakeFolder(); }
  ~CudaLending() override {
    lender_.reset();
    devices_.reset();
    EXPECT_TRUE(fake_cuda::Script(""));
    EXPECT_EQ(Count("mappings"), 0u) << "everything that was opened is closed";
  }

  // Once, before anything else.
  void Begin(const std::string& script = "") {
    EXPECT_TRUE(fake_cuda::Script(script));
    std::vector<std::unique_ptr<DeviceMemory>> devices;
    const auto facts = ListCudaDevices();
    ASSERT_TRUE(facts.ok()) << facts.status();
    for (const DeviceFacts& device : *facts) {
      auto opened = OpenCudaDevice(device, [this] { ++lost_; });
      ASSERT_TRUE(opened.ok()) << opened.status();
      devices.push_back(*std::move(opened));
    }
    devices_.emplace(std::move(devices));
    lender_.emplace(MemoryQuota(), nullptr, &*devices_);
  }

  static uint64_t Count(const char* name) { return fake_cuda::Counts()[name]; }
  DeviceMemory& device(DeviceIndex index = 1) { return devices_->at(index); }

  RegionRequest Part(const Exporter& exporter, uint64_t offset = 0, uint64_t size = kExported) {
    const auto handle = FromHex<cudaIpcMemHandle_t>(exporter.handle());
    RegionRequest region;
    region.size = size;
    region.writable = true;
    CudaAllocation& cuda = region.cuda.emplace();
    std::memcpy(cuda.handle.data(), handle.reserved, cuda.handle.size());
    cuda.device_uuid = device().facts().uuid;
    cuda.base_offset = offset;
    cuda.allocation_bytes = kExported;
    cuda.exporter_pid = static_cast<uint32_t>(exporter_.process().pid());
    cuda.generation = 1;
    return region;
  }
  RegionRequest Whole() { return Part(exporter_); }
  static RegisterSpec Of(std::vector<RegionRequest> regions) {
    RegisterSpec spec;
    spec.regions = std::move(regions);
    return spec;
  }
  // Why a registration is refused; it leaves nothing open.
  std::string Refusal(RegisterSpec spec) {
    const uint64_t before = Count("mappings");
    const absl::Status status = lender_->Register(std::move(spec)).status();
    EXPECT_EQ(Count("mappings"), before);
    return ReasonOf(status) + " " + FieldOf(status);
  }
  std::vector<std::byte> Read(const RegionPin& pin, uint64_t bytes) {
    std::vector<std::byte> read(bytes);
    const auto copier = device(pin.memory()).MakeCopier();
    EXPECT_TRUE(copier.ok() && (*copier)->ToHost(read, pin.data()).ok());
    return read;
  }

  Exporter exporter_;
  std::atomic<int> lost_{0};
  std::optional<DeviceList> devices_;
  std::optional<Lender> lender_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_MEMORY_CUDA_LENDER_H_
