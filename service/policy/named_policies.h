// The policies that have a name, and what each expands to.
#ifndef KVTRIAGE_SERVICE_POLICY_NAMED_POLICIES_H_
#define KVTRIAGE_SERVICE_POLICY_NAMED_POLICIES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/policy/policy.h"

namespace kvtriage {

// streaming, h2o, tova, snapkv, pyramidkv, adakv, vatp, criticalkv, keydiff, knorm, lagkv,
// expected-attention, and each of h2o, tova, snapkv, adakv with +obc-value, +obc-key, +obc-joint,
// +drop. In this order.
const std::vector<std::string>& PolicyNames();

// The parts of a name, without a budget amount; nothing for an unknown name.
std::optional<PolicySpec> ExpandPolicy(std::string_view name);

// The operator's defaults: policy.default, policy.kept_ratio, policy.sinks, policy.recent, and
// their own policies, policy.define.NAME. `sinks` and `recent` replace those numbers of our
// policies where a request gives no protect part; the operator's own say theirs.
struct PolicyDefaults {
  std::string name;  // empty: a request must name a policy
  double kept_ratio = 0.5;
  std::optional<uint32_t> sinks, recent;
  std::vector<PolicySpec> defined;  // by name, without an amount
};

// A name as the operator wants it: one of ours or of theirs, without an amount.
std::optional<PolicySpec> ExpandWithDefaults(std::string_view name, const PolicyDefaults& defaults);

// All names that ExpandWithDefaults knows, ours first.
std::vector<std::string> KnownNames(const PolicyDefaults& defaults);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_NAMED_POLICIES_H_
