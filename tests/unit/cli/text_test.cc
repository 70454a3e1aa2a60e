// Words and tables of info, policies and doctor.
#include "client/cli/policy_sources.h"
#include "client/cli/policy_text.h"
#include "client/cli/stamped_cache.h"
#include "client/cli/text_table.h"
#include "gtest/gtest.h"

namespace kvtriage::cli {
namespace {

TEST(TextTable, AlignsColumnsAndPadsNoLineEnd) {
  EXPECT_EQ(TextTable({{"a", "bb", ""}, {"ccc", "d", "e"}}), "a    bb\nccc  d   e\n");
  EXPECT_EQ(TextTable({}), "");
}

TEST(PolicyText, PartsThatAreAbsentSaySo) {
  client::Policy policy;
  policy.name = "streaming";
  policy.parts.scorer = client::Scorer{client::Scorer::Kind::kRecency};
  policy.parts.protect = client::Protect{4, 1, 0};
  const std::vector<std::string> cells = PolicyCells(policy);
  ASSERT_EQ(cells.size(), PolicyColumns().size());
  EXPECT_EQ(cells, (std::vector<std::string>{"streaming", "recency", "-", "-", "-",
                                             "4 first, 1 newest", "uniform", "uniform", "-",
                                             "StreamingLLM, arXiv 2309.17453"}));
  EXPECT_TRUE(PolicyJson(policy)["pool"].is_null());
  EXPECT_EQ(PolicyJson(policy)["protect"]["sinks"], 4);
}

TEST(PolicyText, EveryPartHasWords) {
  client::Policy policy;
  policy.parts.scorer = client::Scorer{client::Scorer::Kind::kObcJoint};
  policy.parts.window = client::Window{false, 64};
  policy.parts.reduce = client::Reduce::kPre;
  policy.parts.pool = client::Pool{client::Pool::Kind::kAvg, 5};
  policy.parts.protect = client::Protect{20, 0, 0.5};
  policy.parts.budget.emplace().adaptive_alpha = 0.2;
  policy.parts.budget->pyramid_beta = 20;
  policy.parts.granularity = client::Granularity::kPerLayer;
  EXPECT_EQ(PolicyCells(policy),
            (std::vector<std::string>{"", "obc-joint", "last 64", "pre", "avg 5",
                                      "20 first, newest 0.5 of the budget", "pyramid 20",
                                      "adaptive 0.2", "layer", "this service's configuration"}));
}

TEST(PolicyText, SumsThatFadeSayHowFast) {
  client::Policy policy;
  policy.parts.window = client::Window{.all = true, .decay = 0.875};
  EXPECT_EQ(PolicyCells(policy)[2], "all, decay 0.875");
  policy.parts.window->decay = 1;
  EXPECT_EQ(PolicyCells(policy)[2], "all");
}

TEST(PolicyText, ProtectionWithoutARecentWindow) {
  client::Policy policy;
  policy.parts.protect = client::Protect{4, 0, 0};
  EXPECT_EQ(PolicyCells(policy)[5], "4 first");
  policy.parts.protect = client::Protect{};
  EXPECT_EQ(PolicyCells(policy)[5], "nothing");
}

TEST(PolicyText, ScorersSayTheirNumbers) {
  client::Policy policy;
  policy.name = "lagkv";
  policy.parts.scorer = client::Scorer{.kind = client::Scorer::Kind::kLagKv, .lag = 128};
  EXPECT_EQ(PolicyCells(policy)[1], "lagkv 128");
  EXPECT_EQ(PolicyJson(policy)["scorer"], "lagkv");
  EXPECT_EQ(PolicyJson(policy)["lag"], 128);
  policy.parts.scorer =
      client::Scorer{.kind = client::Scorer::Kind::kCritical, .first_stage = 0.5, .epsilon = 1e-4};
  EXPECT_EQ(PolicyCells(policy)[1], "critical 0.5");
  EXPECT_EQ(PolicyJson(policy)["epsilon"], 1e-4);
  policy.parts.scorer =
      client::Scorer{.kind = client::Scorer::Kind::kExpectedAttention, .future = 512};
  EXPECT_EQ(PolicyCells(policy)[1], "expected-attention 512");
  EXPECT_EQ(PolicyJson(policy)["future"], 512);
}

TEST(PolicySource, VariantsNameBothPapers) {
  EXPECT_EQ(PolicySource("snapkv+obc-key"),
            "OBCache, arXiv 2510.07651 over SnapKV, arXiv 2404.14469");
  EXPECT_EQ(PolicySource("knorm"), "L2 norm of keys, arXiv 2406.11430");
  EXPECT_EQ(PolicySource("house-blend"), "this service's configuration");
}

// The doctor's known answer is only as good as its eye for wrong ones.
TEST(StampedCache, SeesRowsThatAreNotThere) {
  const auto cache = StampedCache::Create(8, 2, 2, 4);
  ASSERT_TRUE(cache.ok());
  client::KeptSets kept;
  kept.granularity = client::Granularity::kPerHead;
  kept.heads = {2, 2};
  kept.lists.assign(4, {0, 1, 2});
  EXPECT_EQ(cache->Difference({0, 1, 2}, kept), "");  // where they stand already
  kept.lists.assign(4, {0, 1, 3});
  EXPECT_EQ(cache->Difference({0, 1, 3}, kept), "layer 0, head 0: K row 2 is not old row 3");
  kept.lists[3] = {0, 1, 2};
  kept.lists[0] = kept.lists[1] = kept.lists[2] = {0, 1, 2};
  auto* const last =
      reinterpret_cast<float*>(cache->memory().data()) + ((3 * 2 + 1) * 8 + 2) * 4 + 3;
  *last += 1;
  EXPECT_EQ(cache->Difference({0, 1, 2}, kept), "layer 1, head 1: V row 2 is not old row 2");
  kept.lists[1] = {0, 1};
  EXPECT_EQ(cache->Difference({0, 1, 2}, kept), "layer 0, head 1: other rows were kept");
}

}  // namespace
}  // namespace kvtriage::cli
