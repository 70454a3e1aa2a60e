// What each device runs of the golden set: a CPU everything; emulated kernels what the build can
// afford.
#ifndef KVTRIAGE_TESTS_GOLDEN_DEVICE_SHARE_H_
#define KVTRIAGE_TESTS_GOLDEN_DEVICE_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/each_device.h"

namespace kvtriage {

inline constexpr Device kDevices[] = {Device::kCpu, Device::kCuda};

inline constexpr bool kPlainBuild = Repeats(10) == 10;

enum class CaseSize : uint8_t { kTiny, kSmall, kLarge };

// Backends of a test suite, each made when it is first asked for: cases share them.
class SuiteBackends {
 public:
  Backend& Of(Device device) {
    std::unique_ptr<Backend>& backend = device == Device::kCpu ? cpu_ : cuda_;
    if (backend == nullptr) backend = MakeDeviceBackend(device, 2, 64 << 20);
    return *backend;
  }

 private:
  std::unique_ptr<Backend> cpu_, cuda_;
};

// Emulated kernels run every case in a plain build and those up to small under AddressSanitizer.
// Under ThreadSanitizer all devices run the tiny ones: what a CPU's threads share is tested apart.
inline bool Affords(Device device, CaseSize size) {
  if (kSlowFibers) return size == CaseSize::kTiny;
  return device == Device::kCpu || kPlainBuild || size != CaseSize::kLarge;
}

// Which of the ways to run a case (layouts, sources, ...) a device takes: all of them, or one, so
// that the cases together take every way.
inline bool TakesWay(Device device, size_t case_number, size_t way, size_t ways) {
  return device == Device::kCpu || case_number % ways == way;
}

inline const char* DeviceLabel(Device device) { return device == Device::kCpu ? "Cpu" : "Cuda"; }

// Place of `id` in a list of cases.
inline size_t CaseNumber(const std::vector<std::string>& ids, const std::string& id) {
  size_t number = 0;
  while (number < ids.size() && ids[number] != id) ++number;
  return number;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_DEVICE_SHARE_H_
