// How measurements share the workspace and the launches; what they measure is tested on every
// device (tests/unit/kernels/quality_test.cc).
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/cuda/quality.h"
#include "kernels/emulation/emulation.h"
#include "tests/unit/fake_cuda/fake_device.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

class QualityRounds : public FakeDevice {
 protected:
  QualityRounds() {
    for (int32_t p = 0; p < 40; p += 3) kept_.push_back(p);
    for (auto& problem : problems_) {
      const ScoreRequest score = problem.Request(AttentionSource::kQuery, {});
      requests_.push_back({score.layer, score.input, {kept_, kept_}});
    }
  }

  // Results with a workspace of so many bytes; sets the number of launches.
  absl::StatusOr<std::vector<QualityResult>> Measure(uint64_t bytes) {
    KVTRIAGE_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace, Workspace::Make(bytes));
    emulation::TakeCounters();
    std::vector<QualityResult> results;
    KVTRIAGE_RETURN_IF_ERROR(CudaMeasureLayers(requests_, *workspace, nullptr, results));
    launches_ = emulation::TakeCounters().grids;
    return results;
  }

  static constexpr ProblemShape kShape = {
      .q_heads = 4, .kv_heads = 2, .tokens = 40, .rows = 24, .dk = 16, .dv = 8};
  ScoreProblem problems_[3] = {{kShape, 71}, {kShape, 72}, {kShape, 73}};
  std::vector<int32_t> kept_;
  std::vector<QualityRequest> requests_;
  uint64_t launches_ = 0;
};

TEST_F(QualityRounds, AllLayersTakeOneLaunchPerStage) {
  ASSERT_TRUE(Measure(4 << 20).ok());
  EXPECT_EQ(launches_, 2u);
}

TEST_F(QualityRounds, LittleRoomTakesMoreRoundsAndChangesNoBit) {
  const auto right = Measure(4 << 20);
  ASSERT_TRUE(right.ok());
  uint64_t before = launches_;
  for (const uint64_t bytes : {40'000, 25'000, 15'000}) {
    SCOPED_TRACE(bytes);
    const auto results = Measure(bytes);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_GT(launches_, before);
    before = launches_;
    for (size_t i = 0; i < requests_.size(); ++i) {
      for (size_t head = 0; head < 2; ++head) {
        const HeadQuality& got = (*results)[i].heads[head];
        const HeadQuality& want = (*right)[i].heads[head];
        EXPECT_EQ(got.usable_rows, 48u);
        EXPECT_EQ(got.mass_mean, want.mass_mean);
        EXPECT_EQ(got.error_squares, want.error_squares);
        EXPECT_EQ(got.output_squares, want.output_squares);
      }
    }
  }
}

TEST_F(QualityRounds, NoRoomAtAllIsSaid) {
  const auto results = Measure(2'000);
  const auto info = GetErrorInfo(results.status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kDeviceMemory);
}

}  // namespace
}  // namespace kvtriage
