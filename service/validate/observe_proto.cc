#include "service/validate/observe_proto.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/act_proto.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"
#include "service/validate/inputs_proto.h"
#include "service/validate/output_proto.h"
#include "service/validate/policy_proto.h"
#include "service/validate/scorer_tensors_proto.h"
#include "service/validate/sequence_proto.h"

namespace kvtriage {
namespace {

// A sequence goes on after its eviction, so every step evicts down to the same plain number.
absl::Status CheckBudget(const Budget& budget) {
  constexpr char kField[] = "policy.parts.budget";
  if (!budget.kept_tokens) {
    return Error(ErrorReason::kPolicyInvalid, kField,
                 "Observe keeps a number of rows: kept_tokens");
  }
  return CheckLengths(budget, LengthRule::kOne, kField);
}

absl::Status ReadPolicy(const v1::ObserveRequest& request, const PolicyDefaults& defaults,
                        ObserveSpec& spec) {
  if (!request.has_policy()) return absl::OkStatus();
  KVTRIAGE_ASSIGN_OR_RETURN(spec.policy, ParsePolicy(request.policy(), defaults));
  if (spec.policy->window.all && !AddsUp(spec.policy->score.scorer)) {
    return Error(ErrorReason::kPolicyInvalid, "policy.parts.window",
                 "the scorer does not add up query rows: it needs a window of the newest ones");
  }
  return CheckBudget(spec.policy->budget);
}

absl::Status ReadStep(const v1::ObserveRequest::SequenceStep& step, const ObserveSpec& spec,
                      ObserveStep& out) {
  out.draft_rows = step.draft_rows();
  out.trigger = step.trigger();
  out.accumulate_only = step.accumulate_only();
  if (out.draft_rows > kMaxDraftRows) {
    return Error(ErrorReason::kTooMany, "draft_rows", "draft rows of one sequence")
        .Got(out.draft_rows)
        .Limit(kMaxDraftRows);
  }
  if (out.trigger == 0 || !spec.policy || out.trigger >= *spec.policy->budget.kept_tokens) {
    return absl::OkStatus();
  }
  return Error(ErrorReason::kFieldInvalid, "trigger", "below the budget")
      .Got(out.trigger)
      .Limit(*spec.policy->budget.kept_tokens);
}

absl::StatusOr<SequenceSpec> ReadSequence(const v1::SequenceSpec& sequence, const ObserveSpec& spec,
                                          const ObserveStep& step) {
  const ActKind act = step.may_evict() ? spec.act.kind : ActKind::kSelectOnly;
  KVTRIAGE_ASSIGN_OR_RETURN(SequenceSpec result, ParseSequence(sequence, act));
  if (sequence.has_row_limits()) return Invalid("row_limits", "each row sees up to its own");
  KVTRIAGE_RETURN_IF_ERROR(CheckRowAxis(spec.inputs, result));
  if (spec.act.renumber && step.may_evict() && !result.positions && result.physical_len > 0) {
    return Missing("positions");
  }
  return result;
}

absl::Status ReadSteps(const v1::ObserveRequest& request, ObserveSpec& spec) {
  std::set<uint64_t> ids;
  for (int i = 0; i < request.steps_size(); ++i) {
    const v1::ObserveRequest::SequenceStep& step = request.steps(i);
    const std::string field = Indexed("steps", static_cast<uint64_t>(i));
    auto sequence = ReadSequence(step.sequence(), spec, spec.steps[static_cast<size_t>(i)]);
    if (!sequence.ok()) return UnderField(sequence.status(), field + ".sequence");
    if (!ids.insert(sequence->sequence_id).second) {
      return Error(ErrorReason::kFieldInvalid, field + ".sequence.sequence_id",
                   "sequence named twice")
          .Index(static_cast<uint64_t>(i));
    }
    spec.sequences.push_back(*std::move(sequence));
  }
  return CheckRowElements(spec.inputs, spec.sequences);
}

// The numbers of the steps come first: they say whether anything can be evicted.
absl::Status ReadStepNumbers(const v1::ObserveRequest& request, ObserveSpec& spec) {
  const auto count = static_cast<uint32_t>(request.steps_size());
  if (count == 0) return Missing("steps");
  if (count > kMaxSequencesPerCall) {
    return Error(ErrorReason::kTooMany, "steps", "too many sequences in one call")
        .Got(count)
        .Limit(kMaxSequencesPerCall);
  }
  spec.steps.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const absl::Status status = ReadStep(request.steps(static_cast<int>(i)), spec, spec.steps[i]);
    if (!status.ok()) return UnderField(status, Indexed("steps", i));
  }
  return absl::OkStatus();
}

absl::Status ReadAct(const v1::ObserveRequest& request, const Limits& limits, ObserveSpec& spec) {
  bool may_evict = false;
  for (const ObserveStep& step : spec.steps) may_evict = may_evict || step.may_evict();
  if (may_evict || request.has_act()) {
    KVTRIAGE_RETURN_IF_ERROR(ParseAct(request.act(), limits, spec.act));
  }
  if (!may_evict && !request.has_output()) return absl::OkStatus();
  return ParseOutput(request.has_output(), request.output(),
                     spec.policy ? spec.policy->budget : Budget(), spec.lengths, spec.format);
}

}  // namespace

absl::StatusOr<ObserveSpec> ParseObserve(const v1::ObserveRequest& request, const Limits& limits,
                                         const PolicyDefaults& defaults) {
  ObserveSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  if (request.cache_id() == 0) return Missing("cache_id");
  spec.cache_id = request.cache_id();
  KVTRIAGE_RETURN_IF_ERROR(ReadPolicy(request, defaults, spec));
  KVTRIAGE_ASSIGN_OR_RETURN(spec.inputs, ParseInputs(request.has_inputs(), request.inputs(),
                                                     /*policy=*/nullptr, /*oracle_recall=*/false));
  KVTRIAGE_RETURN_IF_ERROR(ParseScorerTensors(request.inputs(), std::nullopt, spec.inputs));
  KVTRIAGE_RETURN_IF_ERROR(ReadStepNumbers(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadAct(request, limits, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadSteps(request, spec));
  return spec;
}

}  // namespace kvtriage
