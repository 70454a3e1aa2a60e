#include "service/policy/budget_rules.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "service/policy/named_policies.h"

namespace kvtriage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

uint32_t ByRatio(uint32_t rows, double ratio) { return KeptCount(rows, {.kept_ratio = ratio}); }
uint32_t ByTokens(uint32_t rows, uint32_t tokens) {
  return KeptCount(rows, {.kept_tokens = tokens});
}

std::vector<int32_t> Protected(uint32_t rows, uint32_t budget, const Protect& protect,
                               std::vector<int32_t> explicit_rows = {}) {
  return ProtectRows(rows, budget, protect, explicit_rows).value().rows;
}

TEST(KeptCount, IsOneDoubleProductTruncated) {
  const struct {
    uint32_t rows;
    double removed;
    uint32_t kept;
  } cases[] = {{10, .8, 1},     {100, .9, 9},    {300, .9, 29}, {1000, .8, 199}, {1000, .7, 300},
               {4096, .8, 819}, {4096, .9, 409}, {7, .5, 3},    {1, .5, 1},      {128, .25, 96}};
  for (const auto& c : cases) {
    EXPECT_EQ(ByRatio(c.rows, 1.0 - c.removed), c.kept) << c.rows << " " << c.removed;
  }
  EXPECT_EQ(ByRatio(100, 0.29), 28u);
  EXPECT_EQ(ByRatio(1u << 24, 1.0), 1u << 24);
}

TEST(KeptCount, TokensAreClippedToTheRows) {
  EXPECT_EQ(ByTokens(10, 2048), 10u);
  EXPECT_EQ(ByTokens(10, 3), 3u);
  EXPECT_EQ(ByTokens(0, 3), 0u);
}

// Kind: a count that rounds to zero. https://github.com/NVIDIA/kvpress/pull/264
// https://github.com/NVIDIA/kvpress/pull/266
TEST(KeptCount, NeverRoundsToZero) {
  for (const uint32_t rows : {1u, 2u, 3u}) {
    for (const double ratio : {0.5, 0.4, 0.05, 0.001, 5e-324}) {
      EXPECT_EQ(ByRatio(rows, ratio), 1u) << rows << " " << ratio;
    }
  }
  EXPECT_EQ(ByRatio(0, 0.5), 0u);
}

TEST(RecentRows, TakesTheLargerOfRowsAndShare) {
  EXPECT_EQ(RecentRows(100, 10, {.recent = 64}), 64u);
  EXPECT_EQ(RecentRows(100, 10, {.recent_share = 0.5}), 5u);
  EXPECT_EQ(RecentRows(100, 11, {.recent = 3, .recent_share = 0.5}), 5u);
  EXPECT_EQ(RecentRows(100, 11, {.recent = 7, .recent_share = 0.5}), 7u);
  EXPECT_EQ(RecentRows(100, 100, {.recent_share = 0.29}), 28u);
  EXPECT_EQ(RecentRows(5, 3, {.recent = UINT32_MAX}), 5u);
  EXPECT_EQ(RecentRows(5, 3, {}), 0u);
}

TEST(ProtectRows, TrimsSinksBeforeTheNewestRow) {
  EXPECT_THAT(Protected(100, 10, {.sinks = 4, .recent = 64}),
              ElementsAre(0, 1, 2, 3, 94, 95, 96, 97, 98, 99));
  EXPECT_THAT(Protected(10, 1, {.sinks = 4, .recent = 1}), ElementsAre(9));
  EXPECT_THAT(Protected(10, 3, {.sinks = 4, .recent = 1}), ElementsAre(0, 1, 9));
  EXPECT_THAT(Protected(10, 3, {.sinks = 4}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Protected(10, 3, {}), IsEmpty());
}

TEST(ProtectRows, CountsWhatItTrimmed) {
  EXPECT_EQ(ProtectRows(100, 10, {.sinks = 4, .recent = 64}, {})->trimmed, 58u);
  EXPECT_EQ(ProtectRows(10, 10, {.sinks = 8, .recent = 8}, {})->trimmed, 0u);  // they overlap
}

// Kind: a prompt shorter than the window. https://github.com/NVIDIA/kvpress/issues/134
// https://github.com/sgl-project/sglang/pull/12933
TEST(ProtectRows, WindowLongerThanTheSequence) {
  const PolicySpec snapkv = *ExpandPolicy("snapkv");
  const auto five = ProtectRows(5, 3, snapkv.protect, {});
  EXPECT_THAT(five->rows, ElementsAre(2, 3, 4));
  EXPECT_EQ(five->trimmed, 2u);
  for (const uint32_t rows : {64u, 65u}) {
    const auto result = ProtectRows(rows, rows, snapkv.protect, {});
    EXPECT_EQ(result->rows.size(), 64u);
    EXPECT_EQ(result->rows.back(), static_cast<int32_t>(rows) - 1);
    EXPECT_EQ(result->trimmed, 0u);
  }
}

TEST(ProtectRows, ExplicitRowsAlwaysStay) {
  EXPECT_THAT(Protected(10, 4, {.sinks = 2, .recent = 4}, {5, 9}), ElementsAre(0, 5, 8, 9));
  EXPECT_THAT(Protected(10, 2, {.sinks = 2, .recent = 4}, {5, 6}), ElementsAre(5, 6));
  EXPECT_THAT(Protected(10, 3, {.sinks = 3}, {0, 1}), ElementsAre(0, 1, 2));
  const auto refused = ProtectRows(10, 1, {}, std::vector<int32_t>{5, 6}).status();
  ASSERT_EQ(GetErrorInfo(refused)->reason, ErrorReason::kBudgetTooSmall);
  EXPECT_EQ(GetErrorInfo(refused)->got, 2u);
  EXPECT_EQ(GetErrorInfo(refused)->limit, 1u);
}

// Kind: between budget and length. https://github.com/FMInference/H2O/issues/11
// https://github.com/Zefan-Cai/KVCache-Factory/issues/6
TEST(ProtectRows, EverySizeBetweenBudgetAndTwiceTheBudgetWorks) {
  for (const std::string& name : PolicyNames()) {
    const Protect protect = ExpandPolicy(name)->protect;
    for (uint32_t rows = 1; rows <= 200; ++rows) {
      const uint32_t budget = ByTokens(rows, 90);
      const auto result = ProtectRows(rows, budget, protect, {});
      ASSERT_TRUE(result.ok()) << name << " " << rows;
      ASSERT_LE(result->rows.size(), budget) << name << " " << rows;
      ASSERT_EQ(result->rows.size() + CandidateRows(rows, result->rows).size(), rows);
    }
  }
}

// The rule in sets, straight from its three sentences.
std::pair<std::set<int32_t>, size_t> SlowProtect(int32_t rows, size_t budget, const Protect& p,
                                                 const std::set<int32_t>& wanted) {
  const auto recent = static_cast<int32_t>(
      RecentRows(static_cast<uint32_t>(rows), static_cast<uint32_t>(budget), p));
  std::set<int32_t> sinks, newest, all = wanted;
  for (int32_t r = 0; r < rows; ++r) {
    if (wanted.count(r) != 0) continue;
    if (r < static_cast<int32_t>(p.sinks)) sinks.insert(r);
    if (r >= rows - recent) newest.insert(r);
  }
  std::set<int32_t> both = sinks;
  both.insert(newest.begin(), newest.end());
  const size_t total = both.size() + wanted.size();
  if (total > budget) {
    const size_t room = budget - wanted.size();
    size_t first = newest.empty() ? room : (room > 0 ? room - 1 : 0);
    both.clear();
    for (auto it = sinks.begin(); it != sinks.end() && first > 0; ++it, --first) both.insert(*it);
    for (auto it = newest.rbegin(); it != newest.rend() && both.size() < room; ++it) {
      both.insert(*it);
    }
  }
  all.insert(both.begin(), both.end());
  return {all, total - all.size()};
}

TEST(ProtectRows, EqualsTheRuleInSets) {
  constexpr uint32_t kSeed = 20261130;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t rows = 1 + below(20);
    const uint32_t budget = 1 + below(rows);
    const Protect protect = {below(8), below(24), below(3) * 0.37};
    std::set<int32_t> wanted;
    while (wanted.size() < below(budget + 1)) wanted.insert(static_cast<int32_t>(below(rows)));
    const std::vector<int32_t> list(wanted.begin(), wanted.end());
    const auto result = ProtectRows(rows, budget, protect, list);
    const auto [set, trimmed] = SlowProtect(static_cast<int32_t>(rows), budget, protect, wanted);
    ASSERT_TRUE(result.ok());
    ASSERT_THAT(result->rows, ::testing::ElementsAreArray(set)) << "round " << round;
    ASSERT_EQ(result->trimmed, trimmed) << "round " << round;
    ASSERT_LE(result->rows.size(), budget);
  }
}

TEST(CandidateRows, AreTheOthers) {
  EXPECT_THAT(CandidateRows(5, std::vector<int32_t>{0, 3}), ElementsAre(1, 2, 4));
  EXPECT_THAT(CandidateRows(2, {}), ElementsAre(0, 1));
  EXPECT_THAT(CandidateRows(0, {}), IsEmpty());
}

}  // namespace
}  // namespace kvtriage
