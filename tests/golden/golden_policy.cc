#include "tests/golden/golden_policy.h"

#include <map>
#include <string>

namespace kvtriage {
namespace {

template <typename T>
T Lookup(const std::map<std::string, T>& table, const nlohmann::json& name) {
  return table.at(name.get<std::string>());
}

const std::map<std::string, Scorer> kScorers = {
    {"attention", Scorer::kAttention}, {"value", Scorer::kObcValue}, {"key", Scorer::kObcKey},
    {"joint", Scorer::kObcJoint},      {"drop", Scorer::kDrop},      {"vatp", Scorer::kVatp},
    {"recency", Scorer::kRecency},     {"random", Scorer::kRandom}};
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
  policy.has_window = policy.has_reduce = policy.has_pool = UsesQueries(policy.score.scorer);
  if (!p.at("kept_tokens").is_null()) policy.budget.kept_tokens = p.at("kept_tokens");
  if (!p.at("kept_ratio").is_null()) policy.budget.kept_ratio = p.at("kept_ratio");
  if (!p.at("alpha").is_null()) policy.budget.adaptive_alpha = p.at("alpha");
  return policy;
}

}  // namespace kvtriage
