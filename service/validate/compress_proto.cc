#include "service/validate/compress_proto.h"

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
#include "service/validate/output_proto.h"
#include "service/validate/policy_proto.h"
#include "service/validate/scorer_tensors_proto.h"
#include "service/validate/sequence_proto.h"

namespace kvtriage {
namespace {

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

// Rows of one call have no order in time that a decay could follow: it belongs to Observe.
absl::Status CheckDecay(const PolicySpec& policy) {
  if (policy.window.decay == 1) return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, "policy.parts.window.decay",
               "decay is for the running sums of Observe");
}

absl::Status ReadKeepState(const v1::CompressRequest& request, CompressSpec& spec) {
  spec.keep_state = request.keep_state();
  if (!spec.keep_state) return absl::OkStatus();
  const ScoreSpec& score = spec.policy.score;
  if (!spec.policy.window.all || !AddsUp(score.scorer) || score.reduce == Reduce::kMax ||
      spec.from_running_scores) {
    return Error(
        ErrorReason::kPolicyInvalid, "keep_state",
        "running scores need queries, window \"all\" and a score that adds up over query rows");
  }
  return CheckLengths(spec.policy.budget, LengthRule::kOne, "keep_state");
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
  KVTRIAGE_RETURN_IF_ERROR(CheckDecay(spec.policy));
  KVTRIAGE_ASSIGN_OR_RETURN(spec.inputs,
                            ParseInputs(request.has_inputs(), request.inputs(), &spec.policy,
                                        request.measure().oracle_recall()));
  spec.from_running_scores = spec.inputs.source == AttentionSource::kNone &&
                             spec.policy.window.all && AddsUp(spec.policy.score.scorer);
  KVTRIAGE_RETURN_IF_ERROR(
      ParseScorerTensors(request.inputs(), spec.policy.score.scorer, spec.inputs));
  KVTRIAGE_RETURN_IF_ERROR(ParseAct(request.act(), limits, spec.act));
  KVTRIAGE_RETURN_IF_ERROR(ParseOutput(request.has_output(), request.output(), spec.policy.budget,
                                       spec.lengths, spec.format));
  // One next position has to fit all heads and layers.
  const LengthRule renumbered = spec.act.renumber ? LengthRule::kOne : LengthRule::kAny;
  KVTRIAGE_RETURN_IF_ERROR(CheckLengths(spec.policy.budget, renumbered, "act.renumber"));
  KVTRIAGE_RETURN_IF_ERROR(ReadKeepState(request, spec));
  spec.measure = {request.measure().retained_mass(), request.measure().output_error(),
                  request.measure().oracle_recall()};
  KVTRIAGE_RETURN_IF_ERROR(ParseGroup(request.has_group(), request.group(), spec.group));
  if (spec.group && spec.keep_state) {
    return Error(ErrorReason::kUnsupported, "keep_state",
                 "an Observe cannot join the ranks that would go on from these scores");
  }
  return ReadSequences(request, spec);
}

}  // namespace kvtriage
