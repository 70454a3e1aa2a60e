// PolicyParts, both ways: the one reader and the one writer of a policy's parts.
#ifndef KVTRIAGE_SERVICE_VALIDATE_POLICY_PARTS_H_
#define KVTRIAGE_SERVICE_VALIDATE_POLICY_PARTS_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/policy.h"

namespace kvtriage {

// Reads complete parts: all that the scorer can use (FIELD_MISSING), none that it cannot, no
// impossible mix (POLICY_INVALID), every number in range (FIELD_INVALID). Field names are relative
// ("budget.kept_ratio").
absl::StatusOr<PolicySpec> ParsePolicyParts(const v1::PolicyParts& parts);

// The echo: expanding it gives the same policy. The budget's amount is left out when the policy has
// none.
v1::PolicyParts PolicyPartsOf(const PolicySpec& policy);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_POLICY_PARTS_H_
