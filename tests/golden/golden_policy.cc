#include "tests/golden/golden_policy.h"

#include <map>
#include <string>

namespace kvtriage {
namespace {

template <typename T>
T Lookup(const std::map<std::string, T>& table, const nlohmann::json& name) {
  return table.at(name.get<std::string>());
}

const std::map<std::string, Scorer> kScorers = {{"attention", Scorer::kAttention},
                                                {"value", Scorer::kObcValue},
                                                {"key", Scorer::kObcKey},
                                                {"joint", Scorer::kObcJoint},
                                                {"drop", Scorer::kDrop},
                                                {"vatp", Scorer::kVatp},
                                                {"critical", Scorer::kCritical},
                                                {"key_norm", Scorer::kKeyNorm},
                                                {"key_diff", Scorer::kKeyDiff},
                                                {"lagkv", Scorer::kLagKv},
                                                {"expected", Scorer::kExpectedAttention},
                                                {"recency", Scorer::kRecency},
                                                {"random", Scorer::kRandom}};
const std::map<std::string, Reduce> kReduces = {
    {"sum", Reduce::kSum}, {"mean", Reduce::kMean}, {"max", Reduce::kMax}, {"pre", Reduce::kPre}};
const std::map<std::string, Pool> kPools = {
    {"none", Pool::kNone}, {"avg", Pool::kAvg}, {"max", Pool::kMax}};
const std::map<std::string, Granularity> kGranularities = {{"head", Granularity::kPerHead},
                                                           {"layer", Granularity::kPerLayer},
                                                           {"sequence", Granularity::kPerSequence}};

}  // namespace

PolicySpec PolicyOf(const nlohmann::json& p) {
  PolicySpec policy;
  policy.name = p.at("name");
  policy.score = {Lookup(kScorers, p.at("scorer")), Lookup(kReduces, p.at("reduce")),
                  Lookup(kPools, p.at("pool")), p.at("kernel"), p.at("random_key")};
  policy.window = {p.at("window_all"), p.at("window_last")};
  policy.protect = {p.at("sinks"), p.at("recent"), p.at("recent_share")};
  policy.granularity = Lookup(kGranularities, p.at("granularity"));
  policy.has_window = policy.has_pool = UsesQueries(policy.score.scorer);
  policy.has_reduce = UsesReduce(policy.score.scorer);
  if (!p.at("kept_tokens").is_null()) policy.budget.kept_tokens = p.at("kept_tokens");
  if (!p.at("kept_ratio").is_null()) policy.budget.kept_ratio = p.at("kept_ratio");
  policy.score.lag = p.value("lag", 0u);
  policy.score.future = p.value("future", 0u);
  policy.score.epsilon = p.value("eps", 0.0);
  policy.score.first_stage = p.value("first_stage", 0.0);
  if (p.contains("beta")) policy.budget.pyramid_beta = p.at("beta");
  policy.budget.explicit_layers = p.value("explicit_layers", std::vector<uint32_t>());
  policy.budget.explicit_heads = p.value("explicit_heads", std::vector<uint32_t>());
  if (policy.budget.has_counts()) policy.budget.kept_ratio.reset();
  if (!p.at("alpha").is_null()) policy.budget.adaptive_alpha = p.at("alpha");
  return policy;
}

ExplicitRows ExplicitRowsOf(const nlohmann::json& p) {
  if (!p.contains("explicit")) return {};
  const nlohmann::json& rows = p.at("explicit");
  return {Lookup(kGranularities, rows.at("granularity")), rows.at("lists")};
}

}  // namespace kvtriage
