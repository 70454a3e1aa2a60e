// The CUDA backend as its callers see it; its kernels are tested each with the CPU's.
#include "kernels/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/core/error.h"
#include "tests/unit/fake_cuda/fake_device.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

using CudaBackendTest = FakeDevice;

ErrorReason ReasonOf(const absl::Status& status) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  EXPECT_TRUE(info.has_value()) << status;
  return info ? info->reason : ErrorReason::kInternal;
}

std::unique_ptr<Backend> Make(uint64_t bytes) {
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(0, bytes);
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(*made);
}

TEST_F(CudaBackendTest, IsNamedByItsDevice) { EXPECT_EQ(Make(1 << 20)->name(), "cuda:0"); }

TEST_F(CudaBackendTest, NoSuchDevice) {
  EXPECT_FALSE(MakeCudaBackend(77, 1 << 20).ok());
  EXPECT_FALSE(MakeCudaBackend(-1, 1 << 20).ok());
}

TEST_F(CudaBackendTest, AnArenaThatDoesNotFitTheDevice) {
  EXPECT_EQ(ReasonOf(MakeCudaBackend(0, uint64_t{1} << 60).status()), ErrorReason::kDeviceMemory);
}

// One call's needs are no other's: the arena is free again after each, also after a failed one.
TEST_F(CudaBackendTest, CallsThatNeedMoreThanTheArenaLeaveItToTheNext) {
  const std::unique_ptr<Backend> backend = Make(100'000);
  const std::vector<float> many(200'000, 1.0f), few(5'000, 1.0f);
  SelectRequest large{.rows = 200'000, .budget = 7}, small{.rows = 5'000, .budget = 7};
  large.scores = {many};
  large.protect.resize(1);
  small.scores = {few};
  small.protect.resize(1);
  for (int i = 0; i < 5; ++i) {
    std::vector<SelectResult> results;
    EXPECT_EQ(ReasonOf(backend->Select({&large, 1}, results)), ErrorReason::kDeviceMemory);
    const absl::Status status = backend->Select({&small, 1}, results);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(results[0].kept[0], (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(CudaBackendTest, AStopEndsACallBeforeItReadsAnything) {
  ScoreProblem problem({}, 31);
  const ScoreRequest score = problem.Request(AttentionSource::kQuery, {});
  const QualityRequest quality{score.layer, score.input, {{}, {}}};
  const std::vector<QualityRequest> requests(3, quality);
  const std::unique_ptr<Backend> backend = Make(4 << 20);
  std::vector<QualityResult> measured;
  for (int allowed = 0; allowed <= 3; ++allowed) {
    int asked = 0;
    const StopCheck stop = [&]() -> absl::Status {
      return asked++ < allowed ? absl::OkStatus() : absl::CancelledError("enough");
    };
    EXPECT_EQ(backend->Measure(requests, stop, measured).code(),
              allowed < 3 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk);
  }
}

}  // namespace
}  // namespace kvtriage
