#include "service/policy/named_policies.h"

#include <array>

namespace kvtriage {
namespace {

constexpr uint32_t kVoteWindow = 64;  // rows that vote in snapkv and adakv, and that they protect
constexpr double kAdaptiveAlpha = 0.2;
constexpr std::array<std::string_view, 4> kVariantBases = {"h2o", "tova", "snapkv", "adakv"};

struct Variant {
  std::string_view suffix;
  Scorer scorer;
};
constexpr std::array<Variant, 4> kVariants = {{{"+obc-value", Scorer::kObcValue},
                                               {"+obc-key", Scorer::kObcKey},
                                               {"+obc-joint", Scorer::kObcJoint},
                                               {"+drop", Scorer::kDrop}}};

PolicySpec Voting(Scorer scorer, Window window) {
  PolicySpec policy;
  policy.score.scorer = scorer;
  policy.has_window = policy.has_reduce = policy.has_pool = true;
  policy.window = window;
  return policy;
}

PolicySpec Streaming() {
  PolicySpec policy;
  policy.score.scorer = Scorer::kRecency;
  policy.protect = {.sinks = 4, .recent = 1};
  return policy;
}

// Votes of every row; half of the budget is the recent window.
PolicySpec HeavyHitters(Scorer scorer, uint32_t sinks) {
  PolicySpec policy = Voting(scorer, {.all = true});
  policy.protect = {.sinks = sinks, .recent_share = 0.5};
  return policy;
}

PolicySpec Tova() {
  PolicySpec policy = Voting(Scorer::kAttention, {.last = 1});
  policy.protect = {.recent = 1};
  policy.granularity = Granularity::kPerLayer;
  return policy;
}

PolicySpec SnapKv() {
  PolicySpec policy = Voting(Scorer::kAttention, {.last = kVoteWindow});
  policy.score.pool = Pool::kAvg;
  policy.score.pool_kernel = 5;
  policy.protect = {.recent = kVoteWindow};
  return policy;
}

std::optional<PolicySpec> ExpandBase(std::string_view name) {
  if (name == "streaming") return Streaming();
  if (name == "h2o") return HeavyHitters(Scorer::kAttention, 0);
  if (name == "tova") return Tova();
  if (name == "snapkv") return SnapKv();
  if (name == "vatp") return HeavyHitters(Scorer::kVatp, 20);
  if (name == "adakv") {
    PolicySpec policy = SnapKv();
    policy.budget.adaptive_alpha = kAdaptiveAlpha;
    return policy;
  }
  return std::nullopt;
}

// A variant replaces the scorer and nothing else, so that a comparison with its base is fair.
std::optional<PolicySpec> ExpandVariant(std::string_view base, std::string_view suffix) {
  for (const std::string_view allowed : kVariantBases) {
    if (base != allowed) continue;
    for (const Variant& variant : kVariants) {
      if (variant.suffix != suffix) continue;
      std::optional<PolicySpec> policy = ExpandBase(base);
      policy->score.scorer = variant.scorer;
      return policy;
    }
  }
  return std::nullopt;
}

std::vector<std::string> MakeNames() {
  std::vector<std::string> names = {"streaming", "h2o", "tova", "snapkv", "adakv", "vatp"};
  for (const std::string_view base : kVariantBases) {
    for (const Variant& variant : kVariants) {
      names.push_back(std::string(base) + std::string(variant.suffix));
    }
  }
  return names;
}

}  // namespace

const std::vector<std::string>& PolicyNames() {
  static const auto* const names = new std::vector<std::string>(MakeNames());
  return *names;
}

std::optional<PolicySpec> ExpandPolicy(std::string_view name) {
  const size_t plus = name.find('+');
  std::optional<PolicySpec> policy = plus == std::string_view::npos
                                         ? ExpandBase(name)
                                         : ExpandVariant(name.substr(0, plus), name.substr(plus));
  if (policy) policy->name = std::string(name);
  return policy;
}

}  // namespace kvtriage
