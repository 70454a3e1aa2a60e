// Which rows every kept list keeps whatever their score.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_PROTECT_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_PROTECT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "service/engine/triage_lists.h"
#include "service/policy/budget_rules.h"

namespace kvtriage {

struct ProtectPlan {
  std::vector<ProtectedRows> sets;  // one for all lists, or one per list
  const ProtectedRows& Of(uint32_t list) const { return sets.size() == 1 ? sets[0] : sets[list]; }
};

// `budget` is b, below the sequence's rows. BUDGET_TOO_SMALL when the explicit rows of a list
// exceed it.
absl::StatusOr<ProtectPlan> PlanProtect(const TriageSequence& sequence, const ListLayout& lists,
                                        const Protect& protect, uint32_t budget);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_PROTECT_H_
