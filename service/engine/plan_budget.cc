#include "service/engine/plan_budget.h"

#include <algorithm>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/policy/budget_rules.h"

namespace kvtriage {
namespace {

absl::Status CheckCounts(std::string_view field, size_t got, size_t expected) {
  if (got == 0 || got == expected) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid,
               "policy.parts.budget." + std::string(field) + ".counts_le",
               "not one count per layer, or per layer and KV head, of the call")
      .Got(got)
      .Limit(expected);
}

absl::Status CheckHeadsEqual(const std::vector<uint32_t>& counts, const PlanCache& cache) {
  auto count = counts.begin();
  for (const PlanLayer& layer : cache.layers) {
    const auto end = count + layer.kv_heads();
    if (std::any_of(count, end, [&](uint32_t other) { return other != *count; })) {
      return Error(ErrorReason::kLengthsUnequal, "output.lengths",
                   "the budget gives heads different lengths")
          .Index(layer.index);
    }
    count = end;
  }
  return absl::OkStatus();
}

// Rows of one sequence that a layer keeps, under a budget that asks the same of all layers.
uint64_t KeptBy(const PlanLayer& layer, uint64_t rows, const Budget& budget) {
  uint64_t kept = KeptCount(static_cast<uint32_t>(rows), budget);
  if (!budget.explicit_layers.empty()) kept = budget.explicit_layers.front();
  if (!budget.explicit_heads.empty()) kept = budget.explicit_heads.front();
  if (layer.sliding_window > 0) kept = std::min<uint64_t>(kept, layer.sliding_window);
  return std::min(kept, rows);
}

absl::Status CheckOneLength(const CompressSpec& spec, const PlanCache& cache) {
  for (const SequenceSpec& sequence : spec.sequences) {
    const uint64_t first = KeptBy(cache.layers.front(), sequence.physical_len, spec.policy.budget);
    for (const PlanLayer& layer : cache.layers) {
      const uint64_t kept = KeptBy(layer, sequence.physical_len, spec.policy.budget);
      if (kept == first) continue;
      return Error(ErrorReason::kLengthsUnequal, "output.lengths",
                   "a sliding layer keeps at most its window")
          .Index(layer.index)
          .Got(kept)
          .Limit(first);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWindows(const CompressSpec& spec, const PlanCache& cache) {
  const auto slides = [](const PlanLayer& layer) { return layer.sliding_window > 0; };
  const auto sliding = std::find_if(cache.layers.begin(), cache.layers.end(), slides);
  if (sliding == cache.layers.end()) return absl::OkStatus();
  if (spec.policy.budget.pyramid_beta) {
    return Error(ErrorReason::kPolicyInvalid, "policy.parts.budget.pyramid",
                 "sliding layers cannot share rows with others; register a cache of their own")
        .Index(sliding->index);
  }
  if (spec.policy.granularity == Granularity::kPerSequence) {
    for (const PlanLayer& layer : cache.layers) {
      if (layer.sliding_window == cache.layers.front().sliding_window) continue;
      return Error(ErrorReason::kPolicyInvalid, "policy.parts.granularity",
                   "layers that share one set need one window")
          .Index(layer.index)
          .Got(layer.sliding_window)
          .Limit(cache.layers.front().sliding_window);
    }
  }
  return spec.lengths == LengthRule::kOne ? CheckOneLength(spec, cache) : absl::OkStatus();
}

}  // namespace

absl::Status CheckBudget(const CompressSpec& spec, const PlanCache& cache) {
  const Budget& budget = spec.policy.budget;
  size_t lists = 0;
  for (const PlanLayer& layer : cache.layers) lists += layer.kv_heads();
  KVTRIAGE_RETURN_IF_ERROR(
      CheckCounts("explicit_layers", budget.explicit_layers.size(), cache.layers.size()));
  KVTRIAGE_RETURN_IF_ERROR(CheckCounts("explicit_heads", budget.explicit_heads.size(), lists));
  if (!budget.explicit_heads.empty() && spec.lengths != LengthRule::kAny) {
    KVTRIAGE_RETURN_IF_ERROR(CheckHeadsEqual(budget.explicit_heads, cache));
  }
  return CheckWindows(spec, cache);
}

}  // namespace kvtriage
