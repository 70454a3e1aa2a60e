#include "service/engine/triage_protect.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

// Explicit rows per kept list. A list that serves several heads or layers takes the rows of all of
// them.
std::vector<std::vector<int32_t>> ExplicitPerList(const TriageSequence& sequence,
                                                  const ListLayout& lists) {
  std::vector<std::vector<int32_t>> rows(lists.count);
  if (sequence.protect == nullptr || sequence.protect->lists.empty()) return rows;
  const ListLayout given = LayOutLists(sequence, sequence.protect->granularity);
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

// ProtectRows among the rows from `first` on.
absl::StatusOr<ProtectedRows> ProtectFrom(uint32_t first, uint32_t rows, uint32_t budget,
                                          Protect protect, std::vector<int32_t> explicit_rows) {
  const auto before = static_cast<int32_t>(first);
  explicit_rows.erase(explicit_rows.begin(),
                      std::lower_bound(explicit_rows.begin(), explicit_rows.end(), before));
  for (int32_t& row : explicit_rows) row -= before;
  protect.sinks -= std::min(protect.sinks, first);
  KVTRIAGE_ASSIGN_OR_RETURN(ProtectedRows set,
                            ProtectRows(rows - first, budget, protect, explicit_rows));
  for (int32_t& row : set.rows) row += before;
  return set;
}

bool AllEqual(std::span<const uint32_t> numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) == numbers.end();
}

}  // namespace

absl::StatusOr<ProtectPlan> PlanProtect(const TriageSequence& sequence, const ListLayout& lists,
                                        uint32_t sinks, const ListRules& rules) {
  std::vector<std::vector<int32_t>> explicit_rows;
  const ExplicitRows* const given = sequence.protect;
  const bool same_rows =
      given == nullptr || given->lists.empty() || given->granularity == Granularity::kPerSequence;
  if (!same_rows || !AllEqual(rules.first) || !AllEqual(rules.budgets) || !AllEqual(rules.recent)) {
    explicit_rows = ExplicitPerList(sequence, lists);
  } else {
    explicit_rows.emplace_back();
    if (given != nullptr && !given->lists.empty()) explicit_rows[0] = given->lists[0];
  }
  ProtectPlan plan;
  for (size_t i = 0; i < explicit_rows.size(); ++i) {
    const Protect protect{.sinks = sinks, .recent = rules.recent[i]};
    KVTRIAGE_ASSIGN_OR_RETURN(ProtectedRows set,
                              ProtectFrom(rules.first[i], sequence.rows, rules.budgets[i], protect,
                                          std::move(explicit_rows[i])));
    plan.sets.push_back(std::move(set));
  }
  return plan;
}

}  // namespace kvtriage
