#include "service/engine/triage_budget.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/policy/budget_rules.h"
#include "service/policy/pyramid.h"

namespace kvtriage {
namespace {

// Before the rows that the layers behind a list still see.
std::vector<uint32_t> FirstPerList(const TriageSequence& sequence, const ListLayout& lists) {
  std::vector<uint32_t> first(lists.count);
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    const uint32_t window = sequence.layers[l].rows.sliding_window;
    if (window == 0 || window >= sequence.rows) continue;
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h) {
      first[lists.Of(l, h)] = sequence.rows - window;
    }
  }
  return first;
}

std::vector<uint32_t> AskedPerList(const TriageSequence& sequence, const ListLayout& lists,
                                   const Budget& budget) {
  if (!budget.has_counts()) {
    return std::vector<uint32_t>(lists.count, KeptCount(sequence.rows, budget));
  }
  std::vector<uint32_t> budgets(lists.count);
  size_t next = 0;  // of the counts per head
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h, ++next) {
      const bool per_head = !budget.explicit_heads.empty();
      const uint32_t count = per_head ? budget.explicit_heads[next] : budget.explicit_layers[l];
      budgets[lists.Of(l, h)] = std::min(count, sequence.rows);
    }
  }
  return budgets;
}

uint32_t RecentOf(uint32_t rows, uint32_t budget, const PolicySpec& policy) {
  const uint32_t recent = RecentRows(rows, budget, policy.protect);
  if (policy.score.scorer != Scorer::kLagKv) return recent;
  return std::max(recent, LagTail(rows, policy.protect.sinks, policy.score.lag));
}

// Protected rows come on top of what a layer gets, so one number must fit all layers.
absl::Status ShareOverLayers(const TriageSequence& sequence, const ListLayout& lists, uint32_t beta,
                             KeepPlan& plan) {
  const size_t kept_anyway = plan.protect.sets[0].rows.size();
  for (const ProtectedRows& set : plan.protect.sets) {
    if (set.rows.size() == kept_anyway) continue;
    return Error(ErrorReason::kPolicyInvalid, "protect",
                 "a pyramid needs protected sets of one size in all layers and heads")
        .Got(set.rows.size())
        .Limit(kept_anyway);
  }
  const auto fixed = static_cast<uint32_t>(kept_anyway);
  const std::vector<uint32_t> slots = PyramidSlots(sequence.model_layers, plan.budgets[0] - fixed,
                                                   sequence.rows - fixed, beta, fixed == 0 ? 1 : 0);
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h) {
      plan.budgets[lists.Of(l, h)] = fixed + slots[sequence.layers[l].layer_index];
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeepPlan> PlanKeep(const TriageSequence& sequence, const ListLayout& lists,
                                  const PolicySpec& policy) {
  KeepPlan plan;
  plan.first = FirstPerList(sequence, lists);
  plan.budgets = AskedPerList(sequence, lists, policy.budget);
  for (uint32_t list = 0; list < lists.count; ++list) {
    uint32_t& budget = plan.budgets[list];
    budget = std::min(budget, sequence.rows - plan.first[list]);
    plan.recent.push_back(RecentOf(sequence.rows, budget, policy));
  }
  plan.keeps_all = std::all_of(plan.budgets.begin(), plan.budgets.end(),
                               [&](uint32_t budget) { return budget >= sequence.rows; });
  if (plan.keeps_all) return plan;
  KVTRIAGE_ASSIGN_OR_RETURN(plan.protect, PlanProtect(sequence, lists, policy.protect.sinks,
                                                      {plan.first, plan.budgets, plan.recent}));
  if (!policy.budget.pyramid_beta) return plan;
  KVTRIAGE_RETURN_IF_ERROR(ShareOverLayers(sequence, lists, *policy.budget.pyramid_beta, plan));
  return plan;
}

}  // namespace kvtriage
