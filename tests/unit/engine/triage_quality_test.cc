// What a triage says about the quality of its own choice.
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr MeasureSpec kAll = {true, true, true};

TEST(TriageQuality, OfANoopIsPerfect) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 20, 8, 6);
  const TriageResult result = Triage(small.sequence, NamedPolicy("snapkv", 20), kAll);
  ASSERT_TRUE(result.noop);
  const LayerQuality& quality = result.quality.at(0);
  EXPECT_NEAR(quality.mass_mean, 1, 1e-6);
  EXPECT_NEAR(quality.error, 0, 1e-6);
  EXPECT_EQ(quality.recall_mean, 1);
}

TEST(TriageQuality, OfTheOracleItselfHasFullRecall) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 60, 8, 60);
  PolicySpec policy = PlainPolicy(Scorer::kDrop);
  policy.budget.kept_tokens = 20;
  EXPECT_THAT(Triage(small.sequence, policy, kAll).quality[0].head_recall, Each(1.0));
  policy.score.scorer = Scorer::kRecency;
  policy.has_window = policy.has_reduce = policy.has_pool = false;
  EXPECT_LT(Triage(small.sequence, policy, kAll).quality[0].recall_mean, 1.0);
}

TEST(TriageQuality, CountsProtectedRowsNeitherForNorAgainst) {
  SmallSequence small;
  small.AddGridLayer(1000, 2, 1, 30, 8, 30);
  PolicySpec policy = PlainPolicy(Scorer::kRecency);
  policy.has_window = policy.has_reduce = policy.has_pool = false;
  policy.protect.sinks = 10;
  policy.budget.kept_tokens = 10;  // nothing but protected rows
  EXPECT_EQ(Triage(small.sequence, policy, kAll).quality[0].recall_mean, 1);
}

TEST(TriageQuality, OfAPolicyWithoutAWindowUsesTheRowsThatWereBrought) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 60, 8, 7);
  const TriageResult result = Triage(small.sequence, NamedPolicy("streaming", 20), kAll);
  EXPECT_TRUE(result.window_mass.empty());
  const LayerQuality& quality = result.quality.at(0);
  EXPECT_TRUE(quality.has_mass && quality.has_error && quality.has_recall);
  EXPECT_EQ(quality.head_error.size(), 2u);
  EXPECT_LE(quality.head_mass_low[0], quality.head_mass_mean[0]);
  EXPECT_LE(quality.mass_p5, quality.mass_mean);
}

TEST(TriageQuality, IsAbsentWithoutQueries) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 60, 8, 7).input = {};
  const LayerQuality quality =
      Triage(small.sequence, NamedPolicy("streaming", 20), kAll).quality.at(0);
  EXPECT_FALSE(quality.has_mass || quality.has_error || quality.has_recall);
}

TEST(TriageQuality, IsAbsentWhereAHeadHasNoUsableRow) {
  SmallSequence small;
  small.AddGridLayer(1000, 2, 2, 20, 8, 3);
  TriageLayer& damaged = small.AddGridLayer(2000, 2, 2, 20, 8, 3);
  std::vector<double> q(2 * 3 * 8, 1.0);
  for (size_t n = 0; n < 3 * 8; n += 8) q[n] = std::numeric_limits<double>::quiet_NaN();
  damaged.input.q = small.Tensor(q, 2, 3, 8);
  const TriageResult result = Triage(small.sequence, NamedPolicy("streaming", 10), kAll);
  EXPECT_TRUE(result.quality[0].has_mass && result.quality[0].has_error &&
              result.quality[0].has_recall);
  EXPECT_FALSE(result.quality[1].has_mass || result.quality[1].has_error ||
               result.quality[1].has_recall);
}

TEST(TriageQuality, OnlyWhatWasAskedForIsMeasured) {
  SmallSequence small;
  small.AddGridLayer(1000, 2, 2, 20, 8, 3);
  EXPECT_TRUE(Triage(small.sequence, NamedPolicy("snapkv", 10)).quality.empty());
  const LayerQuality mass =
      Triage(small.sequence, NamedPolicy("snapkv", 10), {true, false, false}).quality[0];
  EXPECT_TRUE(mass.has_mass && !mass.has_error && !mass.has_recall);
  const LayerQuality recall =
      Triage(small.sequence, NamedPolicy("snapkv", 10), {false, false, true}).quality[0];
  EXPECT_TRUE(!recall.has_mass && !recall.has_error && recall.has_recall);
}

TEST(TriageQuality, OfColumnSumsIsTheirKeptShare) {
  SmallSequence small;
  small.AddSumsLayer(2, {4, 3, 2, 1, 1, 1, 1, 1});
  PolicySpec policy = PlainPolicy();
  policy.budget.kept_tokens = 2;
  const TriageResult result = Triage(small.sequence, policy, kAll);
  EXPECT_THAT(result.window_mass, ElementsAre(0.7, 0.5));
  const LayerQuality& quality = result.quality.at(0);
  EXPECT_THAT(quality.head_mass_mean, ElementsAre(0.7, 0.5));
  EXPECT_TRUE(quality.head_mass_low.empty());
  EXPECT_TRUE(quality.has_mass && !quality.has_error && !quality.has_recall);
}

TEST(TriageQuality, OfOneSummedRowIsTheSameForEveryHead) {
  SmallSequence small;
  TriageLayer& layer = small.AddSumsLayer(2, {0, 0, 0, 0, 0, 0, 0, 0});
  layer.input.sums_axis = HeadAxis::kSummed;
  layer.input.sums = small.Tensor({1, 5, 2, 2}, 1, 1, 4);
  PolicySpec policy = PlainPolicy();
  policy.granularity = Granularity::kPerLayer;
  policy.budget.kept_tokens = 2;
  const TriageResult result = Triage(small.sequence, policy, kAll);
  EXPECT_THAT(result.kept, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(result.window_mass, ElementsAre(0.7, 0.7));
}

}  // namespace
}  // namespace kvtriage
