// A policy of the operator's own: its parts as protobuf text.
#ifndef KVTRIAGE_SERVICE_VALIDATE_POLICY_DEFINITION_H_
#define KVTRIAGE_SERVICE_VALIDATE_POLICY_DEFINITION_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/policy/policy.h"

namespace kvtriage {

// Whether a policy may be called so: 1 to 32 of a-z, 0-9 and -, and not one of ours.
bool IsOwnPolicyName(std::string_view name);

// `text` is a v1::PolicyParts on one line, complete but for the budget's amount:
// "scorer { vatp {} } window { last: 64 } ...". InvalidArgument with one line of what is wrong, and
// where; a part that requests could not send either is named as it would be in a request.
absl::StatusOr<PolicySpec> ParsePolicyDefinition(std::string_view name, std::string_view text);

// The text again.
std::string PolicyDefinitionText(const PolicySpec& policy);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_POLICY_DEFINITION_H_
