// Which rows and which query rows a triage reads.
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/kernels/backend.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// https://github.com/NVIDIA/kvpress/pull/25 , https://github.com/ml-explore/mlx-lm/issues/1906 ,
// https://github.com/huggingface/transformers/issues/45938
TEST(PaddingTakenAsTokens, ALeftPaddedSequenceIsAsIfItStoodAlone) {
  for (const char* name : {"streaming", "h2o", "snapkv"}) {
    for (const uint32_t rows : {3u, 5u, 7u}) {
      SCOPED_TRACE(testing::Message() << name << ", " << rows << " rows");
      SmallSequence padded, alone;  // slots in front of the rows hold NaN
      padded.AddGridLayer(1000, 4, 2, rows, 8, rows, {"padded", 8, false, 8 - rows});
      alone.AddGridLayer(1000, 4, 2, rows, 8, rows);
      const TriageResult result = Triage(padded.sequence, NamedPolicy(name, 4));
      EXPECT_EQ(result.kept, Triage(alone.sequence, NamedPolicy(name, 4)).kept);
      EXPECT_EQ(result.layers[0].nonfinite_tokens, 0u);
      EXPECT_EQ(result.noop, rows == 3);
      EXPECT_EQ(result.kept[0].size(), rows == 3 ? 3u : 4u);
      if (name == std::string("streaming")) {
        EXPECT_EQ(result.kept[0][0], 0);  // sinks begin at the first valid row
      }
    }
  }
}

// https://github.com/NVIDIA/kvpress/issues/134 , https://github.com/sgl-project/sglang/pull/12933
TEST(PromptShorterThanWindow, TheWindowShrinksAndItsRowsStay) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 5, 8, 5);
  const TriageResult result = Triage(small.sequence, NamedPolicy("snapkv", 3));
  EXPECT_THAT(result.kept, ElementsAre(ElementsAre(2, 3, 4), ElementsAre(2, 3, 4)));
  EXPECT_EQ(result.layers[0].trimmed, 2u);
}

TEST(PromptShorterThanWindow, AsLongAsTheWindowOrOneLonger) {
  for (const uint32_t rows : {64u, 65u}) {
    SmallSequence small;
    small.AddGridLayer(1000, 4, 2, rows, 8, 64);
    const TriageResult result = Triage(small.sequence, NamedPolicy("snapkv", 40));
    EXPECT_EQ(result.kept[0].size(), 40u);
    EXPECT_EQ(result.kept[0][0], static_cast<int32_t>(rows) - 40);
    EXPECT_EQ(result.layers[0].trimmed, 24u);
  }
}

TEST(PromptShorterThanWindow, QueryRowsThatWereNotGivenAreNeverRead) {
  SmallSequence small, wide;
  TriageLayer& layer = small.AddGridLayer(1000, 2, 1, 20, 8, 5);
  TriageLayer& other = wide.AddGridLayer(1000, 2, 1, 20, 8, 5);
  std::vector<double> buffer(2 * 64 * 8,
                             kNan);  // 64 rows, of which the first five are the sequence's
  for (uint32_t h = 0; h < 2; ++h) {
    for (uint32_t i = 0; i < 5; ++i) {
      for (uint32_t c = 0; c < 8; ++c)
        buffer[(h * 64 + i) * 8 + c] = LoadElement(layer.input.q.At(i, h, c), DType::kF32);
    }
  }
  other.input.q = wide.Tensor(buffer, 2, 64, 8);
  other.input.q.rows = 5;
  PolicySpec policy = NamedPolicy("snapkv+obc-joint", 10);
  policy.protect = {};
  const TriageResult result = Triage(wide.sequence, policy, {true, true, true});
  EXPECT_EQ(result.kept, Triage(small.sequence, policy).kept);
  EXPECT_EQ(result.layers[0].skipped_rows, 0u);
  EXPECT_TRUE(result.quality[0].has_error);
}

TEST(ANarrowWindow, IgnoresOlderQueryRows) {
  SmallSequence all, newest;
  TriageLayer& layer = all.AddGridLayer(1000, 2, 1, 20, 8, 6);
  TriageLayer& cut = newest.AddGridLayer(1000, 2, 1, 20, 8, 6);
  cut.input.q.base += 4 * cut.input.q.row_stride;
  cut.input.q.rows = 2;
  PolicySpec policy = PlainPolicy();
  policy.window = {false, 2};
  policy.budget.kept_tokens = 7;
  const TriageResult result = Triage(newest.sequence, policy);
  EXPECT_EQ(Triage(all.sequence, policy).kept, result.kept);
  EXPECT_EQ(Triage(all.sequence, policy).window_mass, result.window_mass);
  policy.window.last = 6;
  EXPECT_NE(Triage(all.sequence, policy).window_mass, result.window_mass);
  EXPECT_EQ(layer.input.q.rows, 6u);
}

TEST(NoUsableRow, IsRefusedWithTheHead) {
  SmallSequence small;
  TriageLayer& layer = small.AddGridLayer(1000, 2, 2, 20, 8, 3);
  std::vector<double> q(2 * 3 * 8, 1.0);
  for (size_t n = 3 * 8; n < q.size(); n += 8) q[n] = kNan;  // every row of the second head
  layer.input.q = small.Tensor(q, 2, 3, 8);
  TriageResult result;
  const absl::Status status =
      TriageOne(*MakeCpuBackend(1), small.sequence, NamedPolicy("snapkv", 10), {}, nullptr, result);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(GetErrorInfo(status)->reason, ErrorReason::kNoUsableRow);
  EXPECT_EQ(GetErrorInfo(status)->index, 1u);
  EXPECT_EQ(GetErrorInfo(status)->field, "inputs");
}

TEST(Stop, EndsTheTriageWithItsStatus) {
  SmallSequence small;
  small.AddGridLayer(1000, 2, 2, 20, 8, 3);
  small.AddGridLayer(2000, 2, 2, 20, 8, 3);
  TriageResult result;
  const absl::Status status = TriageOne(
      *MakeCpuBackend(1), small.sequence, NamedPolicy("snapkv", 10), {},
      [] { return absl::CancelledError("gone"); }, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace kvtriage
