// Policy: a name, parts, or both, merged into one checked policy.
#ifndef KVTRIAGE_SERVICE_VALIDATE_POLICY_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_POLICY_PROTO_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/named_policies.h"
#include "service/policy/policy.h"

namespace kvtriage {

// A name, ours or the operator's own, is expanded with the operator's defaults; a part sent on top
// replaces the named one as a whole, of the budget only those of its three choices that were sent.
// Without a name the parts must be complete. Neither (an absent message too): the operator's
// default policy, else FIELD_MISSING. Fields are named from the request's root
// ("policy.parts.budget.kept_ratio").
absl::StatusOr<PolicySpec> ParsePolicy(const v1::Policy& policy, const PolicyDefaults& defaults);

// Every name the server knows with its parts, without amounts.
std::vector<v1::Policy> KnownPolicies(const PolicyDefaults& defaults);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_POLICY_PROTO_H_
