#include "service/policy/named_policies.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvtriage {
namespace {

// The table of named policies, one row each.
struct Row {
  const char* name;
  Scorer scorer;
  Window window;
  Pool pool;
  uint32_t kernel;
  Protect protect;
  std::optional<double> alpha;
  Granularity granularity;
  std::optional<uint32_t> beta = {};
  Reduce reduce = Reduce::kSum;
  ScoreSpec numbers = {};  // lag, first_stage, epsilon
};

constexpr Window kAll = {.all = true};
constexpr Window kOne = {.last = 1};
constexpr Window kSixtyFour = {.last = 64};

const Row kRows[] = {
    {"streaming", Scorer::kRecency, {}, Pool::kNone, 1, {4, 1, 0}, {}, Granularity::kPerHead},
    {"h2o", Scorer::kAttention, kAll, Pool::kNone, 1, {0, 0, 0.5}, {}, Granularity::kPerHead},
    {"tova", Scorer::kAttention, kOne, Pool::kNone, 1, {0, 1, 0}, {}, Granularity::kPerLayer},
    {"snapkv",
     Scorer::kAttention,
     kSixtyFour,
     Pool::kAvg,
     5,
     {0, 64, 0},
     {},
     Granularity::kPerHead},
    {"adakv",
     Scorer::kAttention,
     kSixtyFour,
     Pool::kAvg,
     5,
     {0, 64, 0},
     0.2,
     Granularity::kPerHead},
    {"vatp", Scorer::kVatp, kAll, Pool::kNone, 1, {20, 0, 0.5}, {}, Granularity::kPerHead},
    {"pyramidkv",
     Scorer::kAttention,
     kSixtyFour,
     Pool::kAvg,
     5,
     {0, 64, 0},
     {},
     Granularity::kPerHead,
     20},
    {"criticalkv",
     Scorer::kCritical,
     kSixtyFour,
     Pool::kAvg,
     5,
     {0, 64, 0},
     {},
     Granularity::kPerHead,
     {},
     Reduce::kMean,
     {.epsilon = 1e-4, .first_stage = 0.5}},
    {"keydiff", Scorer::kKeyDiff, {}, Pool::kNone, 1, {0, 0, 0}, {}, Granularity::kPerHead},
    {"knorm", Scorer::kKeyNorm, {}, Pool::kNone, 1, {0, 0, 0}, {}, Granularity::kPerHead},
    {"lagkv",
     Scorer::kLagKv,
     {},
     Pool::kNone,
     1,
     {4, 1, 0},
     {},
     Granularity::kPerHead,
     {},
     Reduce::kSum,
     {.lag = 128}},
    {"expected-attention",
     Scorer::kExpectedAttention,
     {},
     Pool::kNone,
     1,
     {4, 0, 0},
     {},
     Granularity::kPerHead,
     {},
     Reduce::kMean,
     {.future = 512}},
};

void ExpectRow(const PolicySpec& policy, const Row& row) {
  const bool votes = UsesQueries(row.scorer);
  EXPECT_EQ(policy.has_window, votes);
  EXPECT_EQ(policy.has_reduce, UsesReduce(row.scorer));
  EXPECT_EQ(policy.has_pool, votes);
  EXPECT_EQ(policy.window, row.window);
  EXPECT_EQ(policy.score.reduce, row.reduce);
  EXPECT_EQ(policy.score.lag, row.numbers.lag);
  EXPECT_EQ(policy.score.future, row.numbers.future);
  EXPECT_EQ(policy.score.first_stage, row.numbers.first_stage);
  EXPECT_EQ(policy.score.epsilon, row.numbers.epsilon);
  EXPECT_EQ(policy.score.pool, row.pool);
  EXPECT_EQ(policy.score.pool_kernel, row.kernel);
  EXPECT_EQ(policy.protect, row.protect);
  EXPECT_EQ(policy.budget, (Budget{.adaptive_alpha = row.alpha, .pyramid_beta = row.beta}));
  EXPECT_EQ(policy.granularity, row.granularity);
}

TEST(NamedPolicies, ExpandAsTheTableSays) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const auto policy = ExpandPolicy(row.name);
    ASSERT_TRUE(policy.has_value());
    EXPECT_EQ(policy->name, row.name);
    EXPECT_EQ(policy->score.scorer, row.scorer);
    ExpectRow(*policy, row);
  }
}

TEST(NamedPolicies, VariantsReplaceTheScorerAndNothingElse) {
  const std::pair<const char*, Scorer> variants[] = {{"+obc-value", Scorer::kObcValue},
                                                     {"+obc-key", Scorer::kObcKey},
                                                     {"+obc-joint", Scorer::kObcJoint},
                                                     {"+drop", Scorer::kDrop}};
  for (const Row& row : kRows) {
    const std::string base = row.name;
    const bool has_variants =
        base == "h2o" || base == "tova" || base == "snapkv" || base == "adakv";
    for (const auto& [suffix, scorer] : variants) {
      SCOPED_TRACE(base + suffix);
      const auto policy = ExpandPolicy(base + suffix);
      ASSERT_EQ(policy.has_value(), has_variants);
      if (!policy) continue;
      EXPECT_EQ(policy->name, base + suffix);
      EXPECT_EQ(policy->score.scorer, scorer);
      ExpectRow(*policy, row);
    }
  }
}

TEST(NamedPolicies, UnknownNamesGiveNothing) {
  for (const char* name :
       {"", "snap", "SnapKV", "snapkv ", "snapkv+", "+drop", "snapkv+drop+drop", "snapkv+obc",
        "random", "vatp+drop", "streaming+drop", "pyramidkv+drop", "criticalkv+obc-key", "r-kv"}) {
    EXPECT_FALSE(ExpandPolicy(name).has_value()) << name;
  }
}

TEST(NamedPolicies, ListHoldsEveryNameOnce) {
  EXPECT_EQ(PolicyNames().size(), 28u);
  EXPECT_EQ(PolicyNames().front(), "streaming");
  EXPECT_EQ(PolicyNames()[12], "h2o+obc-value");
  EXPECT_EQ(PolicyNames().back(), "adakv+drop");
  std::vector<std::string> names = PolicyNames();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) EXPECT_TRUE(ExpandPolicy(name).has_value()) << name;
}

TEST(UsesQueries, AllThatVoteByAttention) {
  for (const Scorer scorer : {Scorer::kKeyNorm, Scorer::kKeyDiff, Scorer::kLagKv,
                              Scorer::kExpectedAttention, Scorer::kRecency, Scorer::kRandom}) {
    EXPECT_FALSE(UsesQueries(scorer));
  }
  for (const Scorer scorer : {Scorer::kAttention, Scorer::kObcValue, Scorer::kObcKey,
                              Scorer::kObcJoint, Scorer::kDrop, Scorer::kVatp, Scorer::kCritical}) {
    EXPECT_TRUE(UsesQueries(scorer));
  }
}

}  // namespace
}  // namespace kvtriage
