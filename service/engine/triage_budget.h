// How many rows every kept list of a sequence gets, and which of them are protected.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_BUDGET_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_BUDGET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "service/engine/triage_lists.h"
#include "service/engine/triage_protect.h"
#include "service/policy/policy.h"

namespace kvtriage {

struct KeepPlan {
  std::vector<uint32_t> first;    // per list, its first candidate: a sliding layer keeps no row
                                  // that it has left behind, protected or not; 0 elsewhere
  std::vector<uint32_t> budgets;  // b per list, at most its N - first candidates; with an adaptive
                                  // budget the mean of a layer's lists
  std::vector<uint32_t> recent;   // rows of the recent window per list, as if nothing were trimmed
  bool keeps_all = false;         // every list keeps all N rows; `protect` is then empty
  ProtectPlan protect;
};

// An amount gives every list the same b, explicit counts give each its own, a sliding layer at most
// its window. A pyramid then shares the free slots b - |P| over the layers of the model. Layers
// that share one list have one window, and a pyramid's none. LagKV's rows without a reference join
// the recent window. Errors: see TriageOne.
absl::StatusOr<KeepPlan> PlanKeep(const TriageSequence& sequence, const ListLayout& lists,
                                  const PolicySpec& policy);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_BUDGET_H_
