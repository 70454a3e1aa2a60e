// Budget, both ways.
#ifndef KVTRIAGE_SERVICE_VALIDATE_BUDGET_PARTS_H_
#define KVTRIAGE_SERVICE_VALIDATE_BUDGET_PARTS_H_

#include "absl/status/status.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/policy.h"

namespace kvtriage {

// Sets policy.budget; the granularity is read already. POLICY_INVALID for choices that cannot go
// together or with the granularity, FIELD_MISSING, FIELD_INVALID, TOO_MANY; fields are relative to
// the parts ("budget.kept_ratio"). Left to the planner: how many counts there must be.
absl::Status ParseBudget(const v1::Budget& budget, PolicySpec& policy);

// The amount is left out when there is none.
void WriteBudget(const Budget& budget, v1::Budget& out);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_BUDGET_PARTS_H_
