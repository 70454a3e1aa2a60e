#include "service/policy/named_policies.h"

#include <array>

namespace kvtriage {
namespace {

constexpr uint32_t kVoteWindow = 64;  // rows that vote in snapkv and adakv, and that they protect
constexpr double kAdaptiveAlpha = 0.2;
constexpr uint32_t kPyramidBeta = 20;
constexpr uint32_t kLag = 128;
constexpr uint32_t kFuture = 512;  // positions whose queries are expected
constexpr double kFirstStage = 0.5, kCriticalEpsilon = 1e-4;
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

// Scores that need no queries.
PolicySpec Unasked(Scorer scorer, Protect protect) {
  PolicySpec policy;
  policy.score.scorer = scorer;
  policy.protect = protect;
  return policy;
}

PolicySpec LagKv() {
  PolicySpec policy = Unasked(Scorer::kLagKv, {.sinks = 4, .recent = 1});
  policy.score.lag = kLag;
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

PolicySpec CriticalKv() {
  PolicySpec policy = SnapKv();
  policy.score.scorer = Scorer::kCritical;
  policy.score.reduce = Reduce::kMean;
  policy.score.first_stage = kFirstStage;
  policy.score.epsilon = kCriticalEpsilon;
  return policy;
}

PolicySpec ExpectedAttention() {
  PolicySpec policy = Unasked(Scorer::kExpectedAttention, {.sinks = 4});
  policy.has_reduce = true;
  policy.score.reduce = Reduce::kMean;
  policy.score.future = kFuture;
  return policy;
}

std::optional<PolicySpec> ExpandBase(std::string_view name) {
  if (name == "streaming") return Unasked(Scorer::kRecency, {.sinks = 4, .recent = 1});
  if (name == "h2o") return HeavyHitters(Scorer::kAttention, 0);
  if (name == "tova") return Tova();
  if (name == "snapkv") return SnapKv();
  if (name == "vatp") return HeavyHitters(Scorer::kVatp, 20);
  if (name == "criticalkv") return CriticalKv();
  if (name == "keydiff") return Unasked(Scorer::kKeyDiff, {});
  if (name == "knorm") return Unasked(Scorer::kKeyNorm, {});
  if (name == "lagkv") return LagKv();
  if (name == "expected-attention") return ExpectedAttention();
  if (name == "pyramidkv") {
    PolicySpec policy = SnapKv();
    policy.budget.pyramid_beta = kPyramidBeta;
    return policy;
  }
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
  std::vector<std::string> names = {"streaming", "h2o",   "tova",  "snapkv",
                                    "pyramidkv", "adakv", "vatp",  "criticalkv",
                                    "keydiff",   "knorm", "lagkv", "expected-attention"};
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

std::optional<PolicySpec> ExpandWithDefaults(std::string_view name,
                                             const PolicyDefaults& defaults) {
  for (const PolicySpec& own : defaults.defined) {
    if (own.name == name) return own;
  }
  std::optional<PolicySpec> policy = ExpandPolicy(name);
  if (!policy) return std::nullopt;
  if (defaults.sinks) policy->protect.sinks = *defaults.sinks;
  if (defaults.recent) policy->protect.recent = *defaults.recent;
  return policy;
}

std::vector<std::string> KnownNames(const PolicyDefaults& defaults) {
  std::vector<std::string> names = PolicyNames();
  for (const PolicySpec& own : defaults.defined) names.push_back(own.name);
  return names;
}

}  // namespace kvtriage
