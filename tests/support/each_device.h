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
#include "kernels/cuda/workspace.h"
#include "kernels/emulation/emulation.h"
#include "kvtriage/kernels/backend.h"
#include "tests/support/each_target.h"
#include "tests/support/fiber_cost.h"

namespace kvtriage {

enum class Device { kCpu, kCuda };

// Fixture: parameter is the device. The memory that requests name is the host's on both: an
// emulated kernel reads it as it would a device's.
class EachDevice : public testing::TestWithParam<Device> {
 protected:
  EachDevice();
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

  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result,
                      int threads = 2);
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result, int threads = 2);
  absl::Status Select(std::span<const SelectRequest> requests, std::vector<SelectResult>& results,
                      int threads = 2);
  absl::Status Measure(std::span<const QualityRequest> requests,
                       std::vector<QualityResult>& results, int threads = 2);
  absl::Status Score(std::span<const ScoreRequest> requests, std::vector<ScoreResult>& results,
                     int threads = 2);
  ScoreResult ScoreOne(const ScoreRequest& request, int threads = 2);  // which must succeed
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result, int threads = 2);

 private:
  std::unique_ptr<Workspace> workspace_;
};

inline std::string DeviceName(const testing::TestParamInfo<Device>& info) {
  return info.param == Device::kCpu ? "Cpu" : "Cuda";
}

#define KVTRIAGE_ON_EACH_DEVICE(suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::Values(Device::kCpu, Device::kCuda), DeviceName)

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_EACH_DEVICE_H_
