// Sums over ranks: their order, and heads that several ranks hold.
#include "service/engine/group_join.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

using testing::Each;
using testing::ElementsAre;

struct Rank {
  uint32_t first = 0, heads = 1;
  std::vector<float> numbers;
};

class JoinTest : public testing::Test {
 protected:
  std::vector<RankSums> Sums(ReplicaRule rule) {
    std::vector<RankSums> sums;
    for (Rank& rank : ranks_) sums.push_back({rank.first, rank.heads, rule, {rank.numbers}});
    return sums;
  }
  std::vector<std::vector<float>> Joined(ReplicaRule rule) {
    JoinRanks(Sums(rule));
    std::vector<std::vector<float>> all;
    for (const Rank& rank : ranks_) all.push_back(rank.numbers);
    return all;
  }
  std::string Checked(uint32_t total, ReplicaRule rule = ReplicaRule::kAdd) {
    return ReasonOf(CheckRankHeads(Sums(rule), total));
  }

  std::vector<Rank> ranks_;
};

TEST_F(JoinTest, AddsInRankOrderInFloat32) {
  // In any other order the first number would be 1.
  ranks_ = {{0, 1, {1, 2}}, {1, 1, {1e8f, 3}}, {2, 1, {-1e8f, 4}}};
  EXPECT_THAT(Joined(ReplicaRule::kAdd), Each(ElementsAre(0, 9)));
}

TEST_F(JoinTest, DamagedRowsStayDamaged) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ranks_ = {{0, 2, {1, nan}}, {2, 2, {nan, 1}}};
  for (const std::vector<float>& numbers : Joined(ReplicaRule::kOnce)) {
    EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(numbers[1]));
  }
}

// https://github.com/sgl-project/sglang/pull/19086 ,
// https://github.com/huggingface/transformers/issues/48307
TEST_F(JoinTest, ReplicatedHeadsCountAsTheScoreSays) {
  const std::vector<Rank> four = {{0, 1, {1, 8}}, {0, 1, {3, 8}}, {1, 1, {10, 2}}, {1, 1, {30, 2}}};
  ranks_ = four;
  EXPECT_THAT(Joined(ReplicaRule::kAdd), Each(ElementsAre(44, 20)));
  ranks_ = four;
  EXPECT_THAT(Joined(ReplicaRule::kMean), Each(ElementsAre(22, 10)));
  ranks_ = four;
  EXPECT_THAT(Joined(ReplicaRule::kOnce), Each(ElementsAre(11, 10)));
  EXPECT_EQ(Checked(2), "ok");
  EXPECT_EQ(Checked(2, ReplicaRule::kNone), "policy_invalid");
}

TEST_F(JoinTest, TheRanksHoldTheModelsHeads) {
  ranks_ = {{2, 2, {}}, {0, 2, {}}};
  EXPECT_EQ(Checked(4), "ok");
  EXPECT_EQ(Checked(4, ReplicaRule::kNone), "ok");  // nobody's twice
  EXPECT_EQ(Checked(5), "group_mismatch");          // nobody has the last
  ranks_[1].first = 1;
  EXPECT_EQ(Checked(4), "group_mismatch");  // half shared
}

TEST_F(JoinTest, RulesOfPolicies) {
  PolicySpec policy;
  policy.score.scorer = Scorer::kObcJoint;
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kAdd);
  policy.score.reduce = Reduce::kMean;
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kMean);
  policy.score.pool = Pool::kMax;
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kNone);
  policy.score = {.scorer = Scorer::kAttention, .reduce = Reduce::kPre};
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kNone);
  policy.score = {.scorer = Scorer::kKeyDiff};
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kOnce);
  policy.score = {.scorer = Scorer::kExpectedAttention, .reduce = Reduce::kMean};
  EXPECT_EQ(ReplicaRuleOf(policy), ReplicaRule::kMean);
}

}  // namespace
}  // namespace kvtriage
