#include "kvtriage/kernels/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/support/each_device.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The ranking, said the slow way.
bool Before(const std::vector<float>& scores, int32_t a, int32_t b) {
  const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
  if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
  if (!std::isnan(x) && x != y) return x > y;
  return a < b;
}

std::vector<int32_t> BySorting(const std::vector<float>& scores, std::vector<int32_t> candidates,
                               uint32_t k) {
  std::sort(candidates.begin(), candidates.end(),
            [&](int32_t a, int32_t b) { return Before(scores, a, b); });
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

std::vector<int32_t> Rows(size_t n) {
  std::vector<int32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<float> RandomScores(std::mt19937& random, size_t n) {
  std::vector<float> scores(n);
  const uint32_t kind = random() % 4;
  for (float& x : scores) {
    if (kind == 0) x = std::bit_cast<float>(static_cast<uint32_t>(random()));   // any bits
    if (kind == 1) x = static_cast<float>(static_cast<int>(random() % 7) - 3);  // ties
    if (kind == 2) x = std::exp(static_cast<float>(random() % 10000) * 1e-3f);
    if (kind == 3) x = 1.0f + static_cast<float>(random() % 3000) * 0x1p-23f;  // equal top digits
    if (random() % 16 == 0) {
      const float special[] = {
          kNaN, -kNaN, kInf, -kInf, 0.0f, -0.0f, std::numeric_limits<float>::denorm_min()};
      x = special[random() % 7];
    }
  }
  return scores;
}

TEST(TopKTest, EqualsAFullSortOnEveryTarget) {
  ForEachTarget([] {
    for (uint32_t seed = 0; seed < 1500; ++seed) {
      std::mt19937 random(seed);
      const std::vector<float> scores = RandomScores(random, 1 + random() % 300);
      const uint32_t k = random() % (scores.size() + 1);
      ASSERT_EQ(TopK(scores, k), BySorting(scores, Rows(scores.size()), k)) << "seed " << seed;
    }
  });
}

TEST(TopKTest, CandidatesEqualAFullSortOnEveryTarget) {
  ForEachTarget([] {
    for (uint32_t seed = 0; seed < 1000; ++seed) {
      std::mt19937 random(seed);
      const std::vector<float> scores = RandomScores(random, 1 + random() % 300);
      std::vector<int32_t> candidates;
      const uint32_t share = 1 + random() % 8;
      for (size_t p = 0; p < scores.size(); ++p) {
        if (random() % 8 < share) candidates.push_back(static_cast<int32_t>(p));
      }
      const uint32_t k = random() % (candidates.size() + 1);
      ASSERT_EQ(TopK(scores, candidates, k), BySorting(scores, candidates, k)) << "seed " << seed;
    }
  });
}

TEST(TopKTest, OneRunOfCandidates) {
  const std::vector<float> scores = {9, 1, 3, 2, 3, 9};
  const std::vector<int32_t> run = {1, 2, 3, 4};
  EXPECT_THAT(TopK(scores, run, 2), ElementsAre(2, 4));
  EXPECT_THAT(TopK(scores, run, 1), ElementsAre(2));
}

TEST(TopKTest, LargeInputsEqualAFullSort) {
  ForEachTarget([] {
    std::mt19937 random(7);
    for (const size_t n : {4095u, 65537u, 200000u}) {
      std::vector<float> scores(n);
      std::lognormal_distribution<float> draw(0, 2);
      for (float& x : scores) x = draw(random);
      const uint32_t k = static_cast<uint32_t>(n / 10);
      EXPECT_EQ(TopK(scores, k), BySorting(scores, Rows(n), k)) << n;
    }
  });
}

// https://github.com/pytorch/pytorch/issues/127196
// https://github.com/pytorch/pytorch/issues/27542
// https://github.com/pytorch/pytorch/pull/186653
TEST(TopKTest, RanksDisagree) {
  const std::vector<float> scores = {3, 2, 3, 2, 1, 1};
  const std::vector<std::vector<int32_t>> right = {
      {0}, {0, 2}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}};
  const std::vector<float> flat(1000, 0.25f);
  for (int repeat = 0; repeat < 100; ++repeat) {
    ForEachTarget([&] {
      for (uint32_t k = 1; k <= 5; ++k) ASSERT_EQ(TopK(scores, k), right[k - 1]);
      ASSERT_EQ(TopK(flat, 10), Rows(10));
    });
  }
}

// https://github.com/pytorch/pytorch/issues/16762
// https://github.com/pytorch/pytorch/issues/1810
// https://github.com/pytorch/pytorch/issues/117617
// https://github.com/alibaba/rtp-llm/pull/587
TEST(TopKTest, NonFiniteData) {
  const std::vector<float> scores = {.1f, kInf, kNaN, .3f, .2f, -kNaN, .3f, -kInf};
  const std::vector<int32_t> order = {1, 3, 6, 4, 0, 7, 2, 5};
  ForEachTarget([&] {
    for (uint32_t k = 1; k <= 8; ++k) {
      std::vector<int32_t> right(order.begin(), order.begin() + k);
      std::sort(right.begin(), right.end());
      EXPECT_EQ(TopK(scores, k), right);
    }
    for (const float fill : {-kInf, kNaN, -kNaN, kInf}) {
      EXPECT_EQ(TopK(std::vector<float>(40, fill), 7), Rows(7)) << fill;
    }
    // The two zeros are one score, so the lower row wins whatever its sign.
    EXPECT_THAT(TopK(std::vector<float>{-0.0f, 0.0f, -0.0f}, 2), ElementsAre(0, 1));
  });
}

TEST(TopKTest, NothingAndEverything) {
  const std::vector<float> scores = {1, kNaN, 2};
  EXPECT_TRUE(TopK(scores, 0).empty());
  EXPECT_TRUE(TopK(std::vector<float>{}, 0).empty());
  EXPECT_THAT(TopK(scores, 3), ElementsAre(0, 1, 2));
  EXPECT_TRUE(TopK(scores, std::vector<int32_t>{}, 0).empty());
}

std::vector<uint32_t> Adaptive(const std::vector<std::vector<float>>& scores, uint32_t slots,
                               double alpha, uint32_t least) {
  const std::vector<std::span<const float>> views(scores.begin(), scores.end());
  return AdaptiveCounts(views, Rows(scores[0].size()), slots, alpha, least);
}

TEST(AdaptiveCountsTest, TwoHeadsByHand) {
  const std::vector<std::vector<float>> scores = {{9, 8, 7, 6, 1, 1}, {3, 3, 2, 2, 1, 1}};
  for (const double alpha : {0.0, 0.34, 0.5}) {
    EXPECT_THAT(Adaptive(scores, 3, alpha, 0), ElementsAre(4, 2)) << alpha;
  }
  EXPECT_THAT(Adaptive(scores, 3, 1.0, 0), ElementsAre(3, 3));
}

// https://github.com/rajveer43/VeloxQuant-MLX/issues/31
TEST(AdaptiveCountsTest, AdaptiveThatIsNot) {
  std::vector<std::vector<float>> scores(4, std::vector<float>(16, 0.0625f));
  scores[0].assign(16, 0.002f);
  scores[0][5] = 0.97f;
  ForEachTarget([&] {
    EXPECT_THAT(Adaptive(scores, 8, 0.2, 1), ElementsAre(2, 10, 10, 10));
    EXPECT_THAT(Adaptive(scores, 8, 0.0, 1), ElementsAre(1, 11, 10, 10));
    EXPECT_THAT(Adaptive(scores, 8, 1.0, 1), ElementsAre(8, 8, 8, 8));
  });
}

// https://github.com/NVIDIA/kvpress/pull/264
TEST(AdaptiveCountsTest, CountRoundsToZero) {
  const auto with_rows = [](size_t n) {
    std::vector<std::vector<float>> scores(4, std::vector<float>(n, 1.0f));
    scores[0].assign(n, 1000.0f);
    return scores;
  };
  EXPECT_THAT(Adaptive(with_rows(2), 1, 0.2, 1), Each(1u));
  EXPECT_THAT(Adaptive(with_rows(2), 1, 0.0, 1), Each(1u));
  EXPECT_THAT(Adaptive(with_rows(8), 3, 0.2, 1), ElementsAre(7, 2, 2, 1));
  EXPECT_THAT(Adaptive(with_rows(8), 3, 0.0, 1), ElementsAre(8, 2, 1, 1));
}

TEST(AdaptiveCountsTest, CountsFollowOneRankingOfTheWholeLayer) {
  ForEachTarget([] {
    for (uint32_t seed = 0; seed < 300; ++seed) {
      std::mt19937 random(seed);
      const size_t heads = 1 + random() % 5, rows = 1 + random() % 60;
      std::vector<std::vector<float>> scores(heads);
      for (auto& list : scores) list = RandomScores(random, rows);
      const uint32_t slots = 1 + random() % rows;
      struct Place {
        size_t row, head;
      };
      std::vector<Place> places;
      for (size_t row = 0; row < rows; ++row) {
        for (size_t head = 0; head < heads; ++head) places.push_back({row, head});
      }
      std::stable_sort(places.begin(), places.end(), [&](Place a, Place b) {
        const float x = scores[a.head][a.row], y = scores[b.head][b.row];
        return std::isnan(y) ? !std::isnan(x) : x > y;
      });
      std::vector<uint32_t> counts(heads, 0);
      for (size_t i = 0; i < heads * slots; ++i) ++counts[places[i].head];
      ASSERT_EQ(Adaptive(scores, slots, 0.0, 0), counts) << "seed " << seed;
    }
  });
}

TEST(SumScoresTest, AddsInOrderInFloat) {
  const std::vector<float> a = {1e8f, 1, kNaN, kInf}, b = {-1e8f, 2, 1, -kInf}, c = {1, 3, 1, 0};
  const std::vector<std::span<const float>> rows = {a, b, c};
  const std::vector<float> sums = SumScores(rows);
  EXPECT_EQ(sums[0], 1.0f);
  EXPECT_EQ(sums[1], 6.0f);
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_TRUE(std::isnan(sums[3]));
  EXPECT_TRUE(SumScores({}).empty());
}

class SelectListsTest : public EachDevice {
 protected:
  std::vector<SelectResult> SelectOne(const SelectRequest& request, int threads = 2) {
    std::vector<SelectResult> results;
    EXPECT_TRUE(Select({&request, 1}, results, threads).ok());
    return results;
  }
};
KVTRIAGE_ON_EACH_DEVICE(SelectListsTest);

// Odd scores, many lists of several requests at once, against sorting.
TEST_P(SelectListsTest, ManyListsEqualFullSorts) {
  ForEachWay([this] {
    std::mt19937 random(17);
    const uint32_t most = Times(12);
    for (const uint32_t rows : {1u, 7u, 511u, 512u, 513u, 1500u}) {
      if (kSlowFibers && rows > 600) continue;
      std::vector<std::vector<float>> scores(most);
      for (auto& list : scores) list = RandomScores(random, rows);
      const std::vector<int32_t> none;
      std::vector<SelectRequest> requests(2);
      for (SelectRequest& request : requests) {
        request.rows = rows;
        for (const auto& list : scores) {
          request.scores.emplace_back(list);
          request.protect.emplace_back(none);
          request.list_budgets.push_back(1 + static_cast<uint32_t>(random() % rows));
        }
      }
      std::vector<SelectResult> results;
      ASSERT_TRUE(Select(requests, results).ok());
      for (size_t i = 0; i < 2; ++i) {
        for (size_t list = 0; list < most; ++list) {
          ASSERT_EQ(results[i].kept[list],
                    BySorting(scores[list], Rows(rows), requests[i].list_budgets[list]))
              << rows << " rows, list " << list;
        }
      }
    }
  });
}

TEST_P(SelectListsTest, ProtectedRowsStayAndTheBudgetHolds) {
  for (uint32_t seed = 0; seed < (on_cpu() ? 200 : Repeats(50)); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t rows = 1 + random() % 100, lists = 1 + random() % 4;
    const uint32_t budget = 1 + random() % (rows + 3);
    std::vector<std::vector<float>> scores(lists);
    std::vector<int32_t> protect;
    for (uint32_t p = 0; p < rows && protect.size() < budget; ++p) {
      if (random() % 8 == 0) protect.push_back(static_cast<int32_t>(p));
    }
    SelectRequest request{.rows = rows, .budget = budget};
    for (auto& list : scores) request.scores.emplace_back(list = RandomScores(random, rows));
    request.protect.assign(lists, protect);
    if (random() % 2 == 0) request.adaptive_alpha = 0.2;

    emulation::SetOptions({.seed = seed % 4});
    const std::vector<SelectResult> one = SelectOne(request, 1), many = SelectOne(request, 8);
    ASSERT_EQ(one[0].kept, many[0].kept);
    size_t total = 0;
    for (size_t list = 0; list < lists; ++list) {
      const std::vector<int32_t>& kept = one[0].kept[list];
      total += kept.size();
      EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
      EXPECT_EQ(std::set<int32_t>(kept.begin(), kept.end()).size(), kept.size());
      EXPECT_TRUE(std::includes(kept.begin(), kept.end(), protect.begin(), protect.end()));
      if (!request.adaptive_alpha) {
        EXPECT_EQ(kept.size(), std::min(budget, rows));
      }
      // What was chosen beyond the protected rows is the best of the rest.
      std::vector<int32_t> rest, chosen;
      const std::vector<int32_t> all = Rows(rows);
      std::set_difference(all.begin(), all.end(), protect.begin(), protect.end(),
                          std::back_inserter(rest));
      std::set_difference(kept.begin(), kept.end(), protect.begin(), protect.end(),
                          std::back_inserter(chosen));
      EXPECT_EQ(chosen, BySorting(scores[list], rest, static_cast<uint32_t>(chosen.size())));
    }
    EXPECT_EQ(total, size_t{lists} * std::min(budget, rows));
  }
}

TEST_P(SelectListsTest, ListsMayHaveBudgetsOfTheirOwn) {
  const std::vector<float> up = {1, 2, 3, 4, 5, 6}, down = {6, 5, 4, 3, 2, 1};
  const std::vector<int32_t> none, two = {2};
  SelectRequest request{.rows = 6};
  request.scores = {up, down, up};
  request.protect = {none, two, none};
  request.list_budgets = {1, 3, 9};
  const std::vector<SelectResult> results = SelectOne(request);
  EXPECT_EQ(results[0].kept[0], (std::vector<int32_t>{5}));
  EXPECT_EQ(results[0].kept[1], (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(results[0].kept[2], Rows(6));
}

// Two stages: a = (.5, .2, .15, .1, .05), n = (1, 1, 4, 1, 9), three slots.
TEST_P(SelectListsTest, TheSecondStageChoosesAmongTheRest) {
  const std::vector<float> first = {.5f, .2f, .15f, .1f, .05f};
  const std::vector<float> second = {.5f, .2f, .6f, .1f, .45f};
  const std::vector<int32_t> none;
  SelectRequest request{.rows = 5, .budget = 3};
  request.scores = {first, first};
  request.second_scores = {second, second};
  request.protect = {none, none};
  const struct {
    double first_stage;
    std::vector<int32_t> kept;
    uint32_t stage1, stage2;
  } cases[] = {{0.5, {0, 2, 4}, 2, 4},
               {0.0, {0, 2, 4}, 0, 6},
               {0.7, {0, 1, 2}, 4, 2},
               {1.0, {0, 1, 2}, 6, 0},
               {0.1, {0, 2, 4}, 2, 4}};  // the first stage is never empty
  for (const auto& c : cases) {
    request.first_stage = c.first_stage;
    const std::vector<SelectResult> results = SelectOne(request);
    EXPECT_EQ(results[0].kept[0], c.kept) << c.first_stage;
    EXPECT_EQ(results[0].kept[1], c.kept) << c.first_stage;
    EXPECT_EQ(results[0].stage1, c.stage1) << c.first_stage;
    EXPECT_EQ(results[0].stage2, c.stage2) << c.first_stage;
  }
}

TEST_P(SelectListsTest, RaisingTheBudgetNeverRemovesARow) {
  std::mt19937 random(3);
  const std::vector<float> scores = RandomScores(random, 80);
  const std::vector<int32_t> protect = {0, 1, 78, 79};
  std::vector<int32_t> before;
  for (uint32_t budget = 4; budget <= 81; ++budget) {
    SelectRequest request{.rows = 80, .budget = budget};
    request.scores.emplace_back(scores);
    request.protect.emplace_back(protect);
    const std::vector<SelectResult> results = SelectOne(request);
    const std::vector<int32_t>& kept = results[0].kept[0];
    EXPECT_TRUE(std::includes(kept.begin(), kept.end(), before.begin(), before.end())) << budget;
    before = kept;
  }
  EXPECT_EQ(before, Rows(80));
}

// Adaptive shares by hand, and that ties of a layer fall to the lower row, then to the lower head.
TEST_P(SelectListsTest, SharesOfHeadsFollowOneRankingOfTheLayer) {
  ForEachWay([this] {
    std::mt19937 random(23);
    for (int repeat = 0; repeat < static_cast<int>(Times(30)); ++repeat) {
      const size_t heads = 1 + random() % 5;
      const uint32_t rows = 2 + random() % 60, budget = 1 + random() % (rows - 1);
      std::vector<std::vector<float>> scores(heads);
      const std::vector<int32_t> none;
      SelectRequest request{.rows = rows, .budget = budget, .adaptive_alpha = 0.0};
      for (auto& list : scores) request.scores.emplace_back(list = RandomScores(random, rows));
      request.protect.assign(heads, none);
      const std::vector<uint32_t> counts =
          AdaptiveCounts(request.scores, Rows(rows), budget, 0.0, 1);
      const std::vector<SelectResult> results = SelectOne(request);
      for (size_t head = 0; head < heads; ++head) {
        ASSERT_EQ(results[0].kept[head], BySorting(scores[head], Rows(rows), counts[head]));
      }
    }
  });
}

}  // namespace
}  // namespace kvtriage
