#include "service/engine/noop.h"

#include <numeric>
#include <vector>

#include "kernels/core/status_macros.h"
#include "service/engine/rotation.h"
#include "service/engine/triage_budget.h"
#include "service/engine/triage_lists.h"

namespace kvtriage {

bool TurnsWhenAllStay(const CompressPlan& plan, const PlanSequence& sequence) {
  const RowPositions from = PositionsFrom(sequence.spec->positions, sequence.spec->physical_len, 0);
  std::vector<int32_t> all(sequence.spec->physical_len);
  std::iota(all.begin(), all.end(), 0);
  for (const PlanLayer& layer : plan.cache.layers) {
    for (size_t j = 0; j < all.size(); ++j) {
      if (IsRenumbered(layer, from, all, j)) return true;
    }
  }
  return false;
}

absl::StatusOr<bool> IsNoop(const CompressSpec& spec, const CompressPlan& plan, size_t sequence) {
  const PlanSequence& planned = plan.sequences[sequence];
  const ListLayout lists = LayOutLists(planned.triage, spec.policy.granularity);
  KVTRIAGE_ASSIGN_OR_RETURN(const KeepPlan keep, PlanKeep(planned.triage, lists, spec.policy));
  if (!keep.keeps_all) return false;
  return !spec.act.renumber || !TurnsWhenAllStay(plan, planned);
}

}  // namespace kvtriage
