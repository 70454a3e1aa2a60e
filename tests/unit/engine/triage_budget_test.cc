// Budgets that differ by layer and head, and the windows that follow them.
#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/kernels/backend.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

// Random scores; `layers` layers of two KV heads.
class BudgetTest : public testing::Test {
 protected:
  void AddLayers(uint32_t layers, uint32_t rows) {
    for (uint32_t l = 0; l < layers; ++l) {
      small_.AddSumsLayer(2, std::vector<double>(2 * size_t{rows}, 1.0));
    }
    small_.sequence.model_layers = layers;
    policy_.score = {.scorer = Scorer::kRandom, .random_key = 3};
  }

  absl::Status Refusal() {
    TriageResult result;
    return TriageOne(*MakeCpuBackend(1), small_.sequence, policy_, {}, nullptr, result);
  }

  SmallSequence small_;
  PolicySpec policy_;
};

TEST_F(BudgetTest, APyramidGivesEarlyLayersMore) {
  AddLayers(4, 260);
  policy_.protect.recent = 16;
  policy_.budget = {.kept_tokens = 60, .pyramid_beta = 20};
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_THAT(Counts(result), ElementsAre(102, 102, 74, 74, 46, 46, 18, 18));
  EXPECT_EQ(result.layers[3].kept, 18u);
  EXPECT_EQ(result.layers[3].trimmed, 0u);
}

TEST_F(BudgetTest, APyramidOfSomeLayersIsThatOfTheModel) {
  AddLayers(2, 260);
  small_.sequence.model_layers = 4;
  small_.sequence.layers[0].layer_index = 1;
  small_.sequence.layers[1].layer_index = 3;
  policy_.protect.recent = 16;
  policy_.budget = {.kept_tokens = 60, .pyramid_beta = 20};
  EXPECT_THAT(Counts(Triage(small_.sequence, policy_)), ElementsAre(74, 74, 18, 18));
  policy_.granularity = Granularity::kPerLayer;
  EXPECT_THAT(Counts(Triage(small_.sequence, policy_)), ElementsAre(74, 18));
}

TEST_F(BudgetTest, APyramidWithoutProtectionLeavesNoLayerEmpty) {
  AddLayers(6, 40);
  policy_.budget = {.kept_tokens = 1, .pyramid_beta = 20};
  EXPECT_THAT(Counts(Triage(small_.sequence, policy_)), Each(1u));
  policy_.budget.kept_tokens = 3;
  const std::vector<size_t> counts = Counts(Triage(small_.sequence, policy_));
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), size_t{0}), 3u * 12);
  EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 1u);
}

TEST_F(BudgetTest, APyramidAboveTheLengthKeepsAll) {
  AddLayers(3, 20);
  policy_.budget = {.kept_tokens = 20, .pyramid_beta = 20};
  EXPECT_TRUE(Triage(small_.sequence, policy_).noop);
  policy_.budget.kept_tokens = 19;  // early layers keep all, late ones less
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_FALSE(result.noop);
  EXPECT_THAT(Counts(result), ElementsAre(20, 20, 19, 19, 18, 18));
}

TEST_F(BudgetTest, APyramidSharesHeadsAdaptivelyToo) {
  AddLayers(4, 260);
  policy_.protect.recent = 16;
  policy_.budget = {.kept_tokens = 60, .adaptive_alpha = 0.2, .pyramid_beta = 20};
  const std::vector<size_t> counts = Counts(Triage(small_.sequence, policy_));
  EXPECT_EQ(counts[0] + counts[1], 2u * 102);
  EXPECT_EQ(counts[6] + counts[7], 2u * 18);
}

TEST_F(BudgetTest, APyramidNeedsProtectedSetsOfOneSize) {
  AddLayers(2, 50);
  policy_.protect.sinks = 4;
  policy_.budget = {.kept_tokens = 20, .pyramid_beta = 20};
  ExplicitRows rows{Granularity::kPerLayer, {{1, 2}, {10, 11}}};  // the first two are sinks already
  small_.sequence.protect = &rows;
  const auto info = GetErrorInfo(Refusal());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kPolicyInvalid);
  EXPECT_EQ(info->field, "protect");
  rows.lists[0] = {8, 9};
  EXPECT_TRUE(Refusal().ok());
}

TEST_F(BudgetTest, CountsPerLayerAndHeadAreClippedToTheRows) {
  AddLayers(2, 30);
  policy_.budget = {.explicit_layers = {7, 99}};
  EXPECT_THAT(Counts(Triage(small_.sequence, policy_)), ElementsAre(7, 7, 30, 30));
  policy_.budget = {.explicit_heads = {1, 30, 29, 5}};
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_THAT(Counts(result), ElementsAre(1, 30, 29, 5));
  EXPECT_EQ(result.layers[0].kept, 30u);
  EXPECT_FALSE(result.noop);
  policy_.budget = {.explicit_heads = {30, 31, 99, 30}};
  EXPECT_TRUE(Triage(small_.sequence, policy_).noop);
  policy_.budget = {.explicit_layers = {3, 4}};
  policy_.granularity = Granularity::kPerLayer;
  EXPECT_THAT(Counts(Triage(small_.sequence, policy_)), ElementsAre(3, 4));
}

TEST_F(BudgetTest, CountsTakeThePlaceOfTheBudgetInTheRecentShare) {
  AddLayers(1, 100);
  policy_.protect.recent_share = 0.5;
  policy_.budget = {.explicit_heads = {4, 20}};
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_THAT(result.recent, ElementsAre(2, 10));
  EXPECT_THAT(result.kept[0], testing::IsSupersetOf({98, 99}));
  EXPECT_THAT(result.kept[1], testing::IsSupersetOf({90, 95, 99}));
}

TEST_F(BudgetTest, HeadsShareTheirLayersCountAdaptively) {
  AddLayers(2, 64);
  policy_.budget = {.adaptive_alpha = 0.0, .explicit_layers = {10, 20}};
  const std::vector<size_t> counts = Counts(Triage(small_.sequence, policy_));
  EXPECT_EQ(counts[0] + counts[1], 20u);
  EXPECT_EQ(counts[2] + counts[3], 40u);
}

TEST_F(BudgetTest, ExplicitRowsAboveTheirOwnCountAreRefused) {
  AddLayers(2, 64);
  ExplicitRows rows{Granularity::kPerHead, {{1}, {2, 3}, {4}, {5}}};
  small_.sequence.protect = &rows;
  policy_.budget = {.explicit_heads = {1, 2, 1, 1}};
  EXPECT_TRUE(Refusal().ok());
  policy_.budget.explicit_heads[1] = 1;
  const auto info = GetErrorInfo(Refusal());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kBudgetTooSmall);
}

TEST_F(BudgetTest, RowsThatLagKvCannotMeasureAreRecent) {
  small_.AddGridLayer(5000, 2, 2, 50, 8, 4);
  policy_.score = {.scorer = Scorer::kLagKv, .lag = 8};
  policy_.protect = {.sinks = 4, .recent = 1};
  policy_.budget.kept_tokens = 30;
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_THAT(result.recent, Each(8u + (50 - 4) % 8));
  EXPECT_THAT(result.kept, Each(SizeIs(30)));
  EXPECT_THAT(result.kept[0], testing::IsSupersetOf({0, 3, 36, 40, 49}));
  policy_.score.lag = 24;  // one partition only: newest first
  const TriageResult newest = Triage(small_.sequence, policy_);
  EXPECT_EQ(newest.kept[0][4], 24);
  EXPECT_EQ(newest.recent[0], 1u);
}

// https://github.com/NVIDIA/kvpress/pull/277
TEST_F(BudgetTest, TheFirstStageIsNotEmptyUnlessItIsTold) {
  small_.AddGridLayer(6000, 4, 2, 8, 8, 6);
  policy_ = NamedPolicy("criticalkv", 1);
  policy_.protect = {};
  const struct {
    std::optional<uint32_t> tokens;
    double first_stage;
    uint32_t stage1, stage2;
  } cases[] = {{std::nullopt, 0.5, 1, 0}, {4, 0.5, 2, 2}, {4, 0.0, 0, 4}};
  for (const auto& c : cases) {
    policy_.budget = {.kept_tokens = c.tokens};
    if (!c.tokens) policy_.budget.kept_ratio = 0.1;
    policy_.score.first_stage = c.first_stage;
    const TriageResult result = Triage(small_.sequence, policy_);
    EXPECT_EQ(result.layers[0].stage1, 2 * c.stage1);
    EXPECT_EQ(result.layers[0].stage2, 2 * c.stage2);
    EXPECT_THAT(Counts(result), Each(c.stage1 + c.stage2));
  }
}

TEST_F(BudgetTest, TwoStagesAddUpToTheFreeSlots) {
  small_.AddGridLayer(6000, 4, 2, 50, 8, 6);
  policy_ = NamedPolicy("criticalkv", 20);
  policy_.protect.recent = 6;
  const TriageResult result = Triage(small_.sequence, policy_);
  EXPECT_EQ(result.layers[0].stage1, 2u * 7);
  EXPECT_EQ(result.layers[0].stage2, 2u * 7);
  policy_.score.first_stage = 0;
  EXPECT_EQ(Triage(small_.sequence, policy_).layers[0].stage1, 0u);
}

}  // namespace
}  // namespace kvtriage
