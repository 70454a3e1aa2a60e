#include "service/engine/triage_protect.h"

#include <algorithm>

#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

// Explicit rows per kept list. A list that serves several heads or layers takes the rows of all of
// them.
std::vector<std::vector<int32_t>> ExplicitPerList(const TriageSequence& sequence,
                                                  const ListLayout& lists) {
  const ListLayout given = LayOutLists(sequence, sequence.protect->granularity);
  std::vector<std::vector<int32_t>> rows(lists.count);
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h) {
      const std::vector<int32_t>& more = sequence.protect->lists[given.Of(l, h)];
      std::vector<int32_t>& list = rows[lists.Of(l, h)];
      list.insert(list.end(), more.begin(), more.end());
    }
  }
  for (std::vector<int32_t>& list : rows) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return rows;
}

}  // namespace

absl::StatusOr<ProtectPlan> PlanProtect(const TriageSequence& sequence, const ListLayout& lists,
                                        const Protect& protect, uint32_t budget) {
  std::vector<std::vector<int32_t>> explicit_rows;
  if (sequence.protect == nullptr || sequence.protect->lists.empty()) {
    explicit_rows.emplace_back();
  } else if (sequence.protect->granularity == Granularity::kPerSequence) {
    explicit_rows.push_back(sequence.protect->lists[0]);
  } else {
    explicit_rows = ExplicitPerList(sequence, lists);
  }
  ProtectPlan plan;
  for (const std::vector<int32_t>& rows : explicit_rows) {
    KVTRIAGE_ASSIGN_OR_RETURN(ProtectedRows set, ProtectRows(sequence.rows, budget, protect, rows));
    plan.sets.push_back(std::move(set));
  }
  return plan;
}

}  // namespace kvtriage
