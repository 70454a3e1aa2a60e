// Tests of kernels that run on every device: the CPU backend's instruction sets and the CUDA
// kernels in the emulator, with the same requests and the same right answers.
#ifndef KVTRIAGE_TESTS_SUPPORT_EACH_DEVICE_H_
#define KVTRIAGE_TESTS_SUPPORT_EACH_DEVICE_H_

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/emulation/emulation.h"
#include "kvtriage/kernels/backend.h"
#include "tests/support/each_target.h"
#include "tests/support/fiber_cost.h"

namespace kvtriage {

enum class Device { kCpu, kCuda };

// A backend for `device`: the CPU's with so many threads, or an emulated device's with so much
// memory for plans and results, for the calling thread. The memory that requests name is the host's
// on both: an emulated kernel reads it as it would a device's; for a real device it is copied there
// and back (device_mirror.h).
std::unique_ptr<Backend> MakeDeviceBackend(Device device, int threads = 2,
                                           uint64_t arena_bytes = 16 << 20);

// Fixture: parameter is the device.
class EachDevice : public testing::TestWithParam<Device> {
 protected:
  ~EachDevice() override;

  bool on_cpu() const { return GetParam() == Device::kCpu; }

  // Repetitions: all of them on the CPU.
  uint32_t Times(uint32_t plain) const { return on_cpu() ? plain : Repeats(plain); }

  // Runs `check` for every instruction set, or for every schedule (seeds 0 to 3).
  template <class Check>
  void ForEachWay(Check check) {
    if (on_cpu()) return ForEachTarget(check);
    for (const uint64_t seed : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "schedule " << seed);
      emulation::SetOptions({.seed = seed});
      check();
      if (Repeats(4) == 1) break;
    }
  }

  // What the CUDA kernels have for plans and results from now on; 16 MiB at first.
  void SetWorkspace(uint64_t bytes);

  // The device's backend; the CPU's has so many threads.
  Backend& backend(int threads = 2);

  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result,
                      int threads = 2) {
    return backend(threads).Rotate(requests, result);
  }
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result, int threads = 2) {
    return backend(threads).CopyRows(copies, result);
  }
  absl::Status Select(std::span<const SelectRequest> requests, std::vector<SelectResult>& results,
                      int threads = 2) {
    return backend(threads).Select(requests, results);
  }
  absl::Status Score(std::span<const ScoreRequest> requests, std::vector<ScoreResult>& results,
                     int threads = 2) {
    return backend(threads).Score(requests, nullptr, results);
  }
  ScoreResult ScoreOne(const ScoreRequest& request, int threads = 2);  // which must succeed
  absl::Status Measure(std::span<const QualityRequest> requests,
                       std::vector<QualityResult>& results, int threads = 2) {
    return backend(threads).Measure(requests, nullptr, results);
  }
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result,
                       int threads = 2) {
    return backend(threads).Diverge(request, result);
  }

 private:
  std::unique_ptr<Backend> backend_;
  int threads_ = 0;  // that backend_ has
  uint64_t arena_bytes_ = 16 << 20;
};

inline std::string DeviceName(const testing::TestParamInfo<Device>& info) {
  return info.param == Device::kCpu ? "Cpu" : "Cuda";
}

#define KVTRIAGE_ON_EACH_DEVICE(suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::Values(Device::kCpu, Device::kCuda), DeviceName)

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_EACH_DEVICE_H_
