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

// One entry per list.
struct ListRules {
  std::span<const uint32_t> first;    // candidate; protected rows before it are none
  std::span<const uint32_t> budgets;  // at most the candidates
  std::span<const uint32_t> recent;   // rows of the recent window
};

// BUDGET_TOO_SMALL when the explicit rows of a list exceed its budget.
absl::StatusOr<ProtectPlan> PlanProtect(const TriageSequence& sequence, const ListLayout& lists,
                                        uint32_t sinks, const ListRules& rules);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_PROTECT_H_
