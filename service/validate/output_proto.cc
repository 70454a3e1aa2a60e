#include "service/validate/output_proto.h"

#include <algorithm>
#include <functional>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"

namespace kvtriage {

absl::Status CheckLengths(const Budget& budget, LengthRule rule, std::string_view field) {
  if (rule != LengthRule::kAny && budget.adaptive_alpha) {
    return Error(ErrorReason::kLengthsUnequal, field,
                 "an adaptive budget gives heads different lengths");
  }
  if (rule != LengthRule::kOne) return absl::OkStatus();
  if (budget.pyramid_beta) {
    return Error(ErrorReason::kLengthsUnequal, field, "a pyramid gives layers different lengths");
  }
  for (const auto* counts : {&budget.explicit_layers, &budget.explicit_heads}) {
    const auto differs = std::adjacent_find(counts->begin(), counts->end(), std::not_equal_to<>());
    if (differs == counts->end()) continue;
    return Error(ErrorReason::kLengthsUnequal, field, "the budget's counts give different lengths")
        .Index(static_cast<uint64_t>(differs - counts->begin()) + 1);
  }
  return absl::OkStatus();
}

absl::Status ParseOutput(bool present, const v1::Output& output, const Budget& budget,
                         LengthRule& lengths, KeptFormat& format) {
  if (!present) return Missing("output");
  // Kept sets in regions.
  KVTRIAGE_RETURN_IF_ERROR(
      CheckEnum("output.format", output.format(), v1::KeptFormat_IsValid, {3}));
  if (output.format() == v1::KEPT_FORMAT_BITMAP) format = KeptFormat::kBitmap;
  if (output.format() == v1::KEPT_FORMAT_COUNTS) format = KeptFormat::kCounts;
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("output.lengths", output.lengths(), v1::LengthRule_IsValid));
  if (output.lengths() == v1::LENGTH_RULE_PER_LAYER) lengths = LengthRule::kPerLayer;
  if (output.lengths() == v1::LENGTH_RULE_ONE) lengths = LengthRule::kOne;
  return CheckLengths(budget, lengths, "output.lengths");
}

}  // namespace kvtriage
