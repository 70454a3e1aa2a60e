#include "service/validate/policy_proto.h"

#include <optional>
#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "service/validate/field_checks.h"
#include "service/validate/policy_parts.h"

namespace kvtriage {
namespace {

absl::Status UnknownName(const PolicyDefaults& defaults) {
  std::string text = "unknown policy name; known:";
  for (const std::string& name : KnownNames(defaults)) text += " " + name;
  return Error(ErrorReason::kPolicyUnknown, "policy.name", text);
}

void LayBudgetOver(const v1::Budget& over, v1::Budget& budget) {
  switch (over.amount_case()) {
    case v1::Budget::kKeptTokens:
      budget.set_kept_tokens(over.kept_tokens());
      break;
    case v1::Budget::kKeptRatio:
      budget.set_kept_ratio(over.kept_ratio());
      break;
    case v1::Budget::AMOUNT_NOT_SET:
      break;
  }
  if (over.has_uniform_layers()) *budget.mutable_uniform_layers() = over.uniform_layers();
  if (over.has_pyramid()) *budget.mutable_pyramid() = over.pyramid();
  if (over.has_explicit_layers()) *budget.mutable_explicit_layers() = over.explicit_layers();
  if (over.has_uniform_heads()) *budget.mutable_uniform_heads() = over.uniform_heads();
  if (over.has_adaptive()) *budget.mutable_adaptive() = over.adaptive();
  if (over.has_explicit_heads()) *budget.mutable_explicit_heads() = over.explicit_heads();
}

// Explicit counts replace the amount; else a name without one takes the operator's.
void AddDefaultAmount(const PolicyDefaults& defaults, v1::Budget& budget) {
  const bool has_counts = budget.has_explicit_layers() || budget.has_explicit_heads();
  if (has_counts || budget.amount_case() != v1::Budget::AMOUNT_NOT_SET) return;
  budget.set_kept_ratio(defaults.kept_ratio);
}

void LayOver(const v1::PolicyParts& over, v1::PolicyParts& parts) {
  if (over.has_scorer()) *parts.mutable_scorer() = over.scorer();
  if (over.has_window()) *parts.mutable_window() = over.window();
  if (over.has_reduce()) *parts.mutable_reduce() = over.reduce();
  if (over.has_pool()) *parts.mutable_pool() = over.pool();
  if (over.has_protect()) *parts.mutable_protect() = over.protect();
  if (over.has_budget()) LayBudgetOver(over.budget(), *parts.mutable_budget());
  if (over.granularity() != v1::GRANULARITY_UNSPECIFIED) {
    parts.set_granularity(over.granularity());
  }
}

}  // namespace

absl::StatusOr<PolicySpec> ParsePolicy(const v1::Policy& policy, const PolicyDefaults& defaults) {
  std::string name = policy.name();
  if (name.empty() && !policy.has_parts()) name = defaults.name;
  v1::PolicyParts parts;
  if (!name.empty()) {
    const std::optional<PolicySpec> named = ExpandWithDefaults(name, defaults);
    if (!named) return UnknownName(defaults);
    parts = PolicyPartsOf(*named);
  } else if (!policy.has_parts()) {
    return Missing("policy");
  }
  LayOver(policy.parts(), parts);
  if (!name.empty()) AddDefaultAmount(defaults, *parts.mutable_budget());
  auto spec = ParsePolicyParts(parts);
  if (!spec.ok()) return UnderField(spec.status(), "policy.parts");
  spec->name = std::move(name);
  return spec;
}

std::vector<v1::Policy> KnownPolicies(const PolicyDefaults& defaults) {
  std::vector<v1::Policy> policies;
  for (const std::string& name : KnownNames(defaults)) {
    v1::Policy& policy = policies.emplace_back();
    policy.set_name(name);
    *policy.mutable_parts() = PolicyPartsOf(*ExpandWithDefaults(name, defaults));
  }
  return policies;
}

}  // namespace kvtriage
