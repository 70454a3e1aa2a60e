// Sliding layers: the newest rows are the candidates, whatever was asked to stay, and the rest of a
// triage goes on among them.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "tests/support/plain_score.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using Rows = std::vector<int32_t>;

constexpr uint32_t kRows = 60, kQueries = 60;

Rows Range(int32_t first, int32_t last) {
  Rows rows(static_cast<size_t>(last - first));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

// Recency: the choice itself says which rows were candidates.
PolicySpec Newest(uint32_t tokens) {
  PolicySpec policy;
  policy.score.scorer = Scorer::kRecency;
  policy.budget.kept_tokens = tokens;
  return policy;
}

TriageLayer& AddSliding(SmallSequence& small, uint32_t window, uint64_t seed = 1500) {
  TriageLayer& layer = small.AddGridLayer(seed, 4, 2, kRows, 8, kQueries);
  layer.rows.sliding_window = window;
  return layer;
}

// The float64 scores of a layer under a policy with a window of query rows.
PlainScores Scored(const TriageLayer& layer, const PolicySpec& policy) {
  ScoreRequest request{.layer = layer.rows, .input = layer.input, .spec = policy.score};
  request.window = policy.window.all ? kRows : std::min(policy.window.last, kQueries);
  request.pool_end = kRows - std::min(policy.protect.recent, kRows);
  return PlainScore(request);
}

// Protected rows and the best of the others from `first` on. The cut must be clear.
Rows Best(const double* scores, int32_t first, const PolicySpec& policy, uint32_t kept) {
  Rows rows, others;
  for (int32_t p = first; p < static_cast<int32_t>(kRows); ++p) {
    const bool stays = p < static_cast<int32_t>(policy.protect.sinks) ||
                       p >= static_cast<int32_t>(kRows - policy.protect.recent);
    (stays ? rows : others).push_back(p);
  }
  std::stable_sort(others.begin(), others.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  const size_t free = kept - rows.size();
  if (free > 0 && free < others.size()) {
    EXPECT_GT(scores[others[free - 1]], scores[others[free]] * 1.0001) << "no clear cut";
  }
  rows.insert(rows.end(), others.begin(), others.begin() + static_cast<int64_t>(free));
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(SlidingTriage, KeepsTheBestOfTheWindow) {
  for (const char* name : {"snapkv", "snapkv+obc-joint", "h2o+drop", "h2o+obc-value", "vatp"}) {
    for (const uint32_t window : {7u, 30u, 59u}) {
      for (const uint32_t kept : {6u, 20u}) {
        SCOPED_TRACE(testing::Message() << name << ", window " << window << ", keep " << kept);
        SmallSequence small;
        const TriageLayer& layer = AddSliding(small, window);
        PolicySpec policy = NamedPolicy(name, kept);
        policy.score.pool = Pool::kNone;
        policy.window.last = std::min(policy.window.last, 16u);
        policy.protect = {.sinks = 2, .recent = 3};
        const PlainScores plain = Scored(layer, policy);
        const TriageResult result = Triage(small.sequence, policy);
        for (uint32_t h = 0; h < 2; ++h) {
          EXPECT_EQ(result.kept[h],
                    Best(plain.scores.data() + h * kRows, static_cast<int32_t>(kRows - window),
                         policy, std::min(kept, window)));
        }
        EXPECT_FALSE(result.noop);
        EXPECT_EQ(result.layers[0].kept, std::min(kept, window));
      }
    }
  }
}

TEST(SlidingTriage, AWindowOfAllRowsIsNone) {
  for (const uint32_t window : {kRows, kRows + 1, UINT32_MAX}) {
    SmallSequence sliding, full;
    AddSliding(sliding, window);
    AddSliding(full, 0);
    const PolicySpec policy = NamedPolicy("snapkv+obc-joint", 20);
    const TriageResult result = Triage(sliding.sequence, policy);
    EXPECT_EQ(result.kept, Triage(full.sequence, policy).kept);
    EXPECT_TRUE(Triage(sliding.sequence, Newest(kRows)).noop);
  }
}

TEST(SlidingTriage, ABudgetAboveTheWindowKeepsTheWindow) {
  SmallSequence small;
  AddSliding(small, 10);
  for (const uint32_t tokens : {10u, 11u, kRows, 1000u}) {
    const TriageResult result = Triage(small.sequence, Newest(tokens));
    EXPECT_FALSE(result.noop);
    EXPECT_THAT(result.kept, Each(Range(50, 60)));
  }
  EXPECT_THAT(Triage(small.sequence, Newest(4)).kept, Each(Range(56, 60)));
}

TEST(SlidingTriage, SinksAndExplicitRowsBehindTheWindowGo) {
  SmallSequence small;
  AddSliding(small, 20);
  PolicySpec policy = Newest(6);
  policy.protect = {.sinks = 42, .recent = 1};  // two of them are still seen
  ExplicitRows rows{Granularity::kPerSequence, {{0, 39, 45}}};
  small.sequence.protect = &rows;
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept, Each(ElementsAre(40, 41, 45, 57, 58, 59)));
  EXPECT_EQ(result.layers[0].trimmed, 0u);
  policy.budget.kept_tokens = 3;  // room for one sink beside the newest row
  const TriageResult trimmed = Triage(small.sequence, policy);
  EXPECT_THAT(trimmed.kept, Each(ElementsAre(40, 45, 59)));
  EXPECT_EQ(trimmed.layers[0].trimmed, 1u);
}

TEST(SlidingTriage, LayersBesideItKeepTheirOwn) {
  SmallSequence small;
  AddSliding(small, 0);
  AddSliding(small, 8, 2000);
  AddSliding(small, 16, 3000);
  PolicySpec policy = Newest(12);
  policy.protect.sinks = 2;
  const Rows with_sinks = {0, 1, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59};
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept, ElementsAre(with_sinks, with_sinks, Range(52, 60), Range(52, 60),
                                       Range(48, 60), Range(48, 60)));
  policy.granularity = Granularity::kPerLayer;
  EXPECT_THAT(Triage(small.sequence, policy).kept,
              ElementsAre(with_sinks, Range(52, 60), Range(48, 60)));
  policy.granularity = Granularity::kPerHead;
  policy.budget = {.explicit_layers = {60, 99, 1}};
  const TriageResult counted = Triage(small.sequence, policy);
  EXPECT_THAT(Counts(counted), ElementsAre(60, 60, 8, 8, 1, 1));
  EXPECT_FALSE(counted.noop);
}

TEST(SlidingTriage, HeadsAndLayersShareOneWindow) {
  SmallSequence small;
  AddSliding(small, 9);
  AddSliding(small, 9, 2000);
  PolicySpec policy = NamedPolicy("h2o", 5);
  policy.granularity = Granularity::kPerSequence;
  policy.protect = {};
  std::vector<double> sums(kRows);
  for (const TriageLayer& layer : small.sequence.layers) {
    const PlainScores plain = Scored(layer, policy);
    for (size_t n = 0; n < plain.scores.size(); ++n) sums[n % kRows] += plain.scores[n];
  }
  EXPECT_THAT(Triage(small.sequence, policy).kept, ElementsAre(Best(sums.data(), 51, policy, 5)));
}

TEST(SlidingTriage, AdaptiveHeadsShareTheWindow) {
  SmallSequence small;
  const TriageLayer& layer = AddSliding(small, 12);
  PolicySpec policy = PlainPolicy();
  policy.budget = {.kept_tokens = 5, .adaptive_alpha = 0};
  const PlainScores plain = Scored(layer, policy);
  std::vector<std::pair<double, uint32_t>> all;  // every candidate of every head
  for (uint32_t h = 0; h < 2; ++h) {
    for (uint32_t p = kRows - 12; p < kRows; ++p) all.emplace_back(plain.scores[h * kRows + p], h);
  }
  std::sort(all.rbegin(), all.rend());
  const auto of_first = static_cast<size_t>(std::count_if(
      all.begin(), all.begin() + 10, [](const auto& one) { return one.second == 0; }));
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept, ElementsAre(SizeIs(of_first), SizeIs(10 - of_first)));
  for (const Rows& list : result.kept) EXPECT_GE(list.front(), 48);
  policy.budget.kept_tokens = 30;
  EXPECT_THAT(Triage(small.sequence, policy).kept, Each(Range(48, 60)));
}

TEST(SlidingTriage, TwoStagesCountTheWindowsRows) {
  SmallSequence small;
  AddSliding(small, 10);
  PolicySpec policy = NamedPolicy("criticalkv", 6);
  policy.protect.recent = 2;
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept, Each(SizeIs(6)));
  for (const Rows& list : result.kept) EXPECT_GE(list.front(), 50);
  EXPECT_EQ(result.layers[0].stage1, 2u * 2);
  EXPECT_EQ(result.layers[0].stage2, 2u * 2);
  policy.budget.kept_tokens = 10;  // the whole window: nothing was chosen
  EXPECT_EQ(Triage(small.sequence, policy).layers[0].stage1, 0u);
}

TEST(SlidingTriage, RecallKnowsTheCandidates) {
  SmallSequence small;
  AddSliding(small, 25);
  PolicySpec policy = PlainPolicy(Scorer::kDrop);
  policy.budget.kept_tokens = 8;
  const LayerQuality oracle = Triage(small.sequence, policy, {true, true, true}).quality[0];
  EXPECT_THAT(oracle.head_recall, Each(1.0));
  EXPECT_LT(oracle.mass_mean, 1.0);
  // One query sees the window and no more: with all of it kept nothing is lost.
  small.sequence.layers[0].input.q = small.Tensor(std::vector<double>(4 * 8, 0.5), 4, 1, 8);
  policy = Newest(25);
  const LayerQuality whole = Triage(small.sequence, policy, {true, true, true}).quality[0];
  EXPECT_NEAR(whole.mass_mean, 1, 1e-6);
  EXPECT_NEAR(whole.error, 0, 1e-6);
}

}  // namespace
}  // namespace kvtriage
