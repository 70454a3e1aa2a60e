// How many rows a triage keeps, and which it keeps whatever their score.
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/kernels/backend.h"
#include "service/policy/named_policies.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;
using Rows = std::vector<int32_t>;

// https://github.com/NVIDIA/kvpress/pull/264 and https://github.com/NVIDIA/kvpress/pull/266
TEST(CountRoundsToZero, EveryNamedPolicyKeepsOneRowPerHead) {
  for (const std::string& name : PolicyNames()) {
    for (const uint32_t rows : {1u, 2u, 3u}) {
      for (const double ratio : {0.4, 0.05, 0.001, 1.0 / 3 - 1e-9}) {
        SCOPED_TRACE(testing::Message() << name << ", " << rows << " rows, ratio " << ratio);
        SmallSequence small;
        small.AddGridLayer(1000, 4, 2, rows, 8, rows);
        PolicySpec policy = *ExpandPolicy(name);
        policy.budget.kept_ratio = ratio;
        const TriageResult result = Triage(small.sequence, policy, {true, true, true});
        EXPECT_THAT(Counts(result), Each(1u));
        EXPECT_EQ(result.layers[0].kept, 1u);
        EXPECT_EQ(result.noop, rows == 1);
        ASSERT_TRUE(result.quality[0].has_error);
        EXPECT_TRUE(std::isfinite(result.quality[0].error));  // attention over the row that is left
        EXPECT_GT(result.quality[0].mass_mean, 0.0);
      }
    }
  }
}

// https://github.com/NVIDIA/kvpress/pull/264
TEST(CountRoundsToZero, AdaptiveHeadsNeverEndEmpty) {
  const struct {
    uint32_t rows;
    double alpha;
    std::vector<size_t> counts;
  } cases[] = {{2, 0.2, {1, 1, 1, 1}},
               {2, 0.0, {1, 1, 1, 1}},
               {8, 0.2, {7, 2, 2, 1}},
               {8, 0.0, {8, 2, 1, 1}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows, alpha " << c.alpha);
    std::vector<double> sums(4 * c.rows, 1.0);
    std::fill_n(sums.begin(), c.rows, 1000.0);
    SmallSequence small;
    small.AddSumsLayer(4, sums);
    PolicySpec policy = PlainPolicy();
    policy.budget = {std::nullopt, 0.4, c.alpha};
    const TriageResult result = Triage(small.sequence, policy);
    EXPECT_EQ(Counts(result), c.counts);
    EXPECT_EQ(result.layers[0].kept, c.counts[0]);
  }
}

// https://github.com/rajveer43/VeloxQuant-MLX/issues/31
TEST(AdaptiveThatIsNot, FlatHeadsGetMoreAndEqualHeadsGetTheSame) {
  std::vector<double> sums(4 * 16, 0.0625);
  std::fill_n(sums.begin(), 16, 0.002);
  sums[3] = 0.97;
  SmallSequence small;
  small.AddSumsLayer(4, sums);
  PolicySpec policy = PlainPolicy();
  policy.budget = {8, std::nullopt, 0.2};
  EXPECT_THAT(Counts(Triage(small.sequence, policy)), ElementsAre(2, 10, 10, 10));
}

// https://github.com/FMInference/H2O/issues/11 ,
// https://github.com/Zefan-Cai/KVCache-Factory/issues/6
TEST(BetweenBudgetAndLength, ABudgetAboveTheLengthKeepsAll) {
  for (const uint32_t budget : {10u, 11u, 2048u}) {
    SmallSequence small;
    small.AddGridLayer(2000, 2, 1, 10, 8, 10);
    const TriageResult result = Triage(small.sequence, NamedPolicy("h2o", budget));
    EXPECT_TRUE(result.noop);
    EXPECT_THAT(result.kept, ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)));
    EXPECT_TRUE(result.window_mass.empty());
  }
}

TEST(BetweenBudgetAndLength, EveryLengthUpToTwiceTheBudgetKeepsTheBudget) {
  for (uint32_t rows = 9; rows <= 16; ++rows) {
    for (const std::string& name : PolicyNames()) {
      SCOPED_TRACE(testing::Message() << name << ", " << rows << " rows");
      SmallSequence small;
      small.AddGridLayer(2000, 4, 2, rows, 8, rows);
      const TriageResult result = Triage(small.sequence, NamedPolicy(name, 8));
      const std::vector<size_t> counts = Counts(result);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), size_t{0}), 8 * counts.size());
      EXPECT_FALSE(result.noop);
    }
  }
}

TEST(NoRows, IsANoopThatReadsNothing) {
  TriageSequence sequence;
  sequence.layers.resize(2);  // views and inputs are null
  for (TriageLayer& layer : sequence.layers) layer.rows.k.layout.heads = 3;
  const TriageResult result = Triage(sequence, NamedPolicy("snapkv", 8), {true, true, true});
  EXPECT_TRUE(result.noop);
  EXPECT_EQ(result.kept, std::vector<Rows>(6));
  EXPECT_EQ(result.layers[1].kept, 0u);
  EXPECT_TRUE(result.quality.empty());
}

class ExplicitRowsTest : public testing::Test {
 protected:
  ExplicitRowsTest() {
    small_.AddGridLayer(3000, 2, 2, 12, 8, 12);
    small_.AddGridLayer(4000, 1, 1, 12, 8, 12);  // another number of KV heads
    small_.sequence.protect = &rows_;
  }

  TriageResult Run(Granularity granularity, uint32_t budget) {
    PolicySpec policy = PlainPolicy(Scorer::kRecency);
    policy.has_window = policy.has_reduce = policy.has_pool = false;
    policy.granularity = granularity;
    policy.budget.kept_tokens = budget;
    return Triage(small_.sequence, policy);
  }

  ExplicitRows rows_;
  SmallSequence small_;
};

TEST_F(ExplicitRowsTest, OfTheSequenceHoldInEveryList) {
  rows_ = {Granularity::kPerSequence, {{1, 5}}};
  EXPECT_THAT(Run(Granularity::kPerHead, 3).kept, Each(ElementsAre(1, 5, 11)));
}

TEST_F(ExplicitRowsTest, OfALayerHoldInItsHeads) {
  rows_ = {Granularity::kPerLayer, {{1}, {2, 3}}};
  EXPECT_THAT(Run(Granularity::kPerHead, 3).kept,
              ElementsAre(ElementsAre(1, 10, 11), ElementsAre(1, 10, 11), ElementsAre(2, 3, 11)));
}

TEST_F(ExplicitRowsTest, OfAHeadHoldInItsListAndListsAreFoundByLayerAndHead) {
  rows_ = {Granularity::kPerHead, {{0}, {1}, {2}}};
  const TriageResult result = Run(Granularity::kPerHead, 2);
  EXPECT_THAT(result.ListOf(0, 0), ElementsAre(0, 11));
  EXPECT_THAT(result.ListOf(0, 1), ElementsAre(1, 11));
  EXPECT_THAT(result.ListOf(1, 0), ElementsAre(2, 11));
}

TEST_F(ExplicitRowsTest, FinerThanTheGranularityAreAllKept) {
  rows_ = {Granularity::kPerHead, {{0, 7}, {1, 7}, {2}}};
  const TriageResult per_layer = Run(Granularity::kPerLayer, 4);
  EXPECT_THAT(per_layer.kept, ElementsAre(ElementsAre(0, 1, 7, 11), ElementsAre(2, 9, 10, 11)));
  EXPECT_EQ(&per_layer.ListOf(0, 1), &per_layer.kept[0]);
  const TriageResult per_sequence = Run(Granularity::kPerSequence, 4);
  EXPECT_THAT(per_sequence.kept, ElementsAre(ElementsAre(0, 1, 2, 7)));
  EXPECT_EQ(&per_sequence.ListOf(1, 0), &per_sequence.kept[0]);
}

TEST_F(ExplicitRowsTest, MoreThanTheBudgetAreRefused) {
  rows_ = {Granularity::kPerHead, {{0}, {1, 2, 3}, {2}}};
  PolicySpec policy = NamedPolicy("streaming", 2);
  TriageResult result;
  const absl::Status status =
      TriageOne(*MakeCpuBackend(1), small_.sequence, policy, {}, nullptr, result);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(GetErrorInfo(status)->reason, ErrorReason::kBudgetTooSmall);
}

}  // namespace
}  // namespace kvtriage
