#include "service/validate/budget_parts.h"

#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

absl::Status ParseAmount(const v1::Budget& budget, Budget& spec) {
  switch (budget.amount_case()) {
    case v1::Budget::kKeptTokens:
      if (budget.kept_tokens() == 0) return Invalid("budget.kept_tokens", "must be at least 1");
      spec.kept_tokens = budget.kept_tokens();
      return absl::OkStatus();
    case v1::Budget::kKeptRatio:
      if (!(budget.kept_ratio() > 0.0 && IsShare(budget.kept_ratio()))) {
        return Invalid("budget.kept_ratio", "must be above 0 and at most 1");
      }
      spec.kept_ratio = budget.kept_ratio();
      return absl::OkStatus();
    case v1::Budget::AMOUNT_NOT_SET:
      break;
  }
  return Missing("budget");
}

absl::Status ParseCounts(const std::string& field, const v1::Budget::ExplicitCounts& counts,
                         uint64_t most, std::vector<uint32_t>& out) {
  std::vector<int32_t> list;
  KVTRIAGE_RETURN_IF_ERROR(ReadInt32s(field, counts.counts_le(), most, list));
  if (list.empty()) return Missing(field);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= 1) continue;
    return Error(ErrorReason::kFieldInvalid, field, "a count below 1").Index(i);
  }
  out.assign(list.begin(), list.end());
  return absl::OkStatus();
}

absl::Status ParseLayerBudget(const v1::Budget& budget, PolicySpec& policy) {
  if (!budget.has_pyramid() && !budget.has_explicit_layers()) return absl::OkStatus();
  if (policy.granularity == Granularity::kPerSequence) {
    return Error(ErrorReason::kPolicyInvalid,
                 budget.has_pyramid() ? "budget.pyramid" : "budget.explicit_layers",
                 "layers that share one set cannot have budgets of their own");
  }
  if (budget.has_explicit_layers()) {
    return ParseCounts("budget.explicit_layers.counts_le", budget.explicit_layers(),
                       kMaxLayersPerCache, policy.budget.explicit_layers);
  }
  policy.budget.pyramid_beta = budget.pyramid().beta();
  return CheckRange("budget.pyramid.beta", budget.pyramid().beta(), kMaxPyramidBeta);
}

absl::Status ParseHeadCounts(const v1::Budget& budget, PolicySpec& policy) {
  if (policy.granularity != Granularity::kPerHead) {
    return Error(ErrorReason::kPolicyInvalid, "budget.explicit_heads",
                 "heads that share one set cannot have budgets of their own");
  }
  if (budget.has_pyramid() || budget.has_explicit_layers()) {
    return Error(ErrorReason::kPolicyInvalid, "budget.explicit_heads",
                 "counts per head leave nothing to share over the layers");
  }
  return ParseCounts("budget.explicit_heads.counts_le", budget.explicit_heads(),
                     uint64_t{kMaxLayersPerCache} * kMaxKvHeads, policy.budget.explicit_heads);
}

void WriteCounts(const std::vector<uint32_t>& counts, v1::Budget::ExplicitCounts& out) {
  // Counts came as int32, so they are the same bytes.
  out.set_counts_le(counts.data(), counts.size() * sizeof(uint32_t));
}

}  // namespace

absl::Status ParseBudget(const v1::Budget& budget, PolicySpec& policy) {
  KVTRIAGE_RETURN_IF_ERROR(ParseLayerBudget(budget, policy));
  if (budget.has_explicit_heads()) KVTRIAGE_RETURN_IF_ERROR(ParseHeadCounts(budget, policy));
  if (!policy.budget.has_counts()) {
    KVTRIAGE_RETURN_IF_ERROR(ParseAmount(budget, policy.budget));
  } else if (budget.amount_case() != v1::Budget::AMOUNT_NOT_SET) {
    return Error(ErrorReason::kPolicyInvalid, "budget",
                 "explicit counts take the place of the amount");
  }
  if (!budget.has_adaptive()) return absl::OkStatus();
  if (!IsShare(budget.adaptive().alpha())) return Invalid("budget.adaptive.alpha", "outside 0..1");
  if (policy.granularity != Granularity::kPerHead) {
    return Error(ErrorReason::kPolicyInvalid, "budget.adaptive",
                 "heads that share one set cannot have budgets of their own");
  }
  policy.budget.adaptive_alpha = budget.adaptive().alpha();
  return absl::OkStatus();
}

void WriteBudget(const Budget& budget, v1::Budget& out) {
  if (budget.kept_tokens) out.set_kept_tokens(*budget.kept_tokens);
  if (budget.kept_ratio) out.set_kept_ratio(*budget.kept_ratio);
  if (budget.pyramid_beta) {
    out.mutable_pyramid()->set_beta(*budget.pyramid_beta);
  } else if (!budget.explicit_layers.empty()) {
    WriteCounts(budget.explicit_layers, *out.mutable_explicit_layers());
  } else {
    out.mutable_uniform_layers();
  }
  if (budget.adaptive_alpha) {
    out.mutable_adaptive()->set_alpha(*budget.adaptive_alpha);
  } else if (!budget.explicit_heads.empty()) {
    WriteCounts(budget.explicit_heads, *out.mutable_explicit_heads());
  } else {
    out.mutable_uniform_heads();
  }
}

}  // namespace kvtriage
