#include "service/validate/compress_proto.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/policy/budget_rules.h"
#include "service/validate/act_proto.h"
#include "service/validate/field_checks.h"
#include "service/validate/group_proto.h"
#include "service/validate/header_proto.h"
#include "service/validate/inputs_proto.h"
#include "service/validate/policy_proto.h"
#include "service/validate/scorer_tensors_proto.h"
#include "service/validate/sequence_proto.h"

namespace kvtriage {
namespace {

// Whether the budget keeps to a rule of lengths that `field` asks for. Explicit counts per head
// under PER_LAYER are left to the planner: it knows which head is whose.
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

absl::Status ReadOutput(const v1::CompressRequest& request, CompressSpec& spec) {
  if (!request.has_output()) return Missing("output");
  const v1::Output& output = request.output();
  // Bitmaps and kept sets in regions.
  KVTRIAGE_RETURN_IF_ERROR(
      CheckEnum("output.format", output.format(), v1::KeptFormat_IsValid, {2, 3}));
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("output.lengths", output.lengths(), v1::LengthRule_IsValid));
  if (output.lengths() == v1::LENGTH_RULE_PER_LAYER) spec.lengths = LengthRule::kPerLayer;
  if (output.lengths() == v1::LENGTH_RULE_ONE) spec.lengths = LengthRule::kOne;
  return CheckLengths(spec.policy.budget, spec.lengths, "output.lengths");
}

absl::Status CheckExplicitRows(const SequenceSpec& sequence, const PolicySpec& policy) {
  const ExplicitRows& protect = sequence.protect;
  if (protect.lists.empty()) return absl::OkStatus();
  // Granularities are ordered from the finest to the coarsest.
  if (protect.granularity < policy.granularity) {
    return Error(ErrorReason::kPolicyInvalid, "protect.granularity",
                 "finer than the sets that the policy makes");
  }
  if (policy.budget.adaptive_alpha && protect.granularity == Granularity::kPerHead) {
    return Error(ErrorReason::kPolicyInvalid, "protect.granularity",
                 "an adaptive budget needs the same explicit rows in all heads");
  }
  if (policy.budget.pyramid_beta) {
    const size_t size = protect.lists[0].size();
    for (size_t i = 1; i < protect.lists.size(); ++i) {
      if (protect.lists[i].size() == size) continue;
      return Error(ErrorReason::kPolicyInvalid, "protect",
                   "a pyramid needs equally many explicit rows in all layers and heads")
          .Index(i)
          .Got(protect.lists[i].size())
          .Limit(size);
    }
  }
  // Without an amount, all rows: counts per layer or head are compared when lists are numbered.
  const uint32_t kept = KeptCount(static_cast<uint32_t>(sequence.physical_len), policy.budget);
  for (size_t i = 0; i < protect.lists.size(); ++i) {
    if (protect.lists[i].size() <= kept) continue;
    return Error(ErrorReason::kBudgetTooSmall, "protect", "more explicit rows than the budget")
        .Index(i)
        .Got(protect.lists[i].size())
        .Limit(kept);
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceSpec> ReadSequence(const v1::SequenceSpec& sequence,
                                          const CompressSpec& spec) {
  KVTRIAGE_ASSIGN_OR_RETURN(SequenceSpec result, ParseSequence(sequence, spec.act.kind));
  KVTRIAGE_RETURN_IF_ERROR(CheckInputRows(spec.inputs, spec.policy, result));
  KVTRIAGE_RETURN_IF_ERROR(CheckExplicitRows(result, spec.policy));
  if (spec.act.renumber && !result.positions && result.physical_len > 0) {
    return Missing("positions");
  }
  return result;
}

absl::Status ReadSequences(const v1::CompressRequest& request, CompressSpec& spec) {
  const auto count = static_cast<uint32_t>(request.sequences_size());
  if (count == 0) return Missing("sequences");
  if (count > kMaxSequencesPerCall) {
    return Error(ErrorReason::kTooMany, "sequences", "too many sequences in one call")
        .Got(count)
        .Limit(kMaxSequencesPerCall);
  }
  spec.sequences.reserve(count);
  std::set<uint64_t> ids;
  for (uint32_t i = 0; i < count; ++i) {
    auto sequence = ReadSequence(request.sequences(static_cast<int>(i)), spec);
    if (!sequence.ok()) return UnderField(sequence.status(), Indexed("sequences", i));
    if (!ids.insert(sequence->sequence_id).second) {
      return Error(ErrorReason::kFieldInvalid, Indexed("sequences", i) + ".sequence_id",
                   "sequence named twice")
          .Index(i);
    }
    spec.sequences.push_back(*std::move(sequence));
  }
  return CheckRowElements(spec.inputs, spec.sequences);
}

}  // namespace

absl::StatusOr<CompressSpec> ParseCompress(const v1::CompressRequest& request, const Limits& limits,
                                           const PolicyDefaults& defaults) {
  CompressSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  KVTRIAGE_RETURN_IF_ERROR(ParseCompressBody(request, limits, defaults, spec));
  return spec;
}

absl::Status ParseCompressBody(const v1::CompressRequest& request, const Limits& limits,
                               const PolicyDefaults& defaults, CompressSpec& spec) {
  if (request.cache_id() == 0) return Missing("cache_id");
  spec.cache_id = request.cache_id();
  KVTRIAGE_RETURN_IF_ERROR(ParseLayers(request.layers_le(), spec.layers));
  KVTRIAGE_ASSIGN_OR_RETURN(spec.policy, ParsePolicy(request.policy(), defaults));
  KVTRIAGE_ASSIGN_OR_RETURN(spec.inputs, ParseInputs(request, spec.policy));
  KVTRIAGE_RETURN_IF_ERROR(
      ParseScorerTensors(request.inputs(), spec.policy.score.scorer, spec.inputs));
  KVTRIAGE_RETURN_IF_ERROR(ParseAct(request.act(), limits, spec.act));
  KVTRIAGE_RETURN_IF_ERROR(ReadOutput(request, spec));
  // One next position has to fit all heads and layers.
  const LengthRule renumbered = spec.act.renumber ? LengthRule::kOne : LengthRule::kAny;
  KVTRIAGE_RETURN_IF_ERROR(CheckLengths(spec.policy.budget, renumbered, "act.renumber"));
  spec.measure = {request.measure().retained_mass(), request.measure().output_error(),
                  request.measure().oracle_recall()};
  KVTRIAGE_RETURN_IF_ERROR(ParseGroup(request.has_group(), request.group(), spec.group));
  return ReadSequences(request, spec);
}

}  // namespace kvtriage
