// A call's budget against the layers and heads that it is for.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_BUDGET_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_BUDGET_H_

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Explicit counts fit the layers and heads and what the engine can carry. Sliding layers keep at
// most their window: they join no pyramid (POLICY_INVALID), share a set only with layers of the
// same window (POLICY_INVALID), and give every layer one length only where no window cuts a budget
// that others may fill (LENGTHS_UNEQUAL).
absl::Status CheckBudget(const CompressSpec& spec, const PlanCache& cache);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_BUDGET_H_
