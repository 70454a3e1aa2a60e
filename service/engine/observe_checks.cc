#include "service/engine/observe_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

std::string StepField(size_t step, std::string_view name) {
  return absl::StrCat("steps[", step, "].", absl::string_view(name.data(), name.size()));
}

bool BringsQueries(AttentionSource source) {
  return source == AttentionSource::kQuery || source == AttentionSource::kQueryOutput;
}

// A policy may be named another way as long as it does the same.
bool SamePolicy(PolicySpec a, const PolicySpec& b) {
  a.name = b.name;
  return a == b;
}

absl::Status OtherPolicy(size_t step) {
  return Error(ErrorReason::kPolicyInvalid, "policy", "not the one that the sequence runs under")
      .Index(step);
}

// Scores that a Compress has left fix what is added up, and nothing else of the policy.
bool Fits(const RunningScores& scores, const PolicySpec& policy) {
  if (scores.policy) return SamePolicy(*scores.policy, policy);
  return KeepsSums(policy) && scores.scorer == policy.score.scorer &&
         scores.reduce == policy.score.reduce;
}

absl::Status Stale(size_t step, uint64_t got, uint64_t expected) {
  return Error(ErrorReason::kSequenceStale, StepField(step, "sequence.physical_len"),
               "not the rows that we know and the new ones")
      .Got(got)
      .Limit(expected);
}

// Rows that the call appends; of a sequence that begins, all that there are at most.
absl::Status CheckLength(const ObserveSpec& spec, const PolicySpec& policy,
                         const RunningScores* known, size_t i) {
  const SequenceSpec& sequence = spec.sequences[i];
  const uint64_t before = known == nullptr ? 0 : known->rows;
  const bool counted = KeepsSums(policy) && spec.inputs.source != AttentionSource::kColumnSums;
  if (known != nullptr && counted && sequence.physical_len != before + sequence.rows_count) {
    return Stale(i, sequence.physical_len, before + sequence.rows_count);
  }
  if (sequence.physical_len < before) return Stale(i, sequence.physical_len, before);
  const uint64_t appended = counted ? sequence.rows_count : sequence.physical_len - before;
  if (spec.steps[i].draft_rows <= appended) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, StepField(i, "draft_rows"), "more than the new rows")
      .Got(spec.steps[i].draft_rows)
      .Limit(appended);
}

// An evicting call that computes its scores afresh brings all the rows that the policy asks for.
absl::Status CheckWindow(const ObserveSpec& spec, const PolicySpec& policy, size_t i) {
  if (KeepsSums(policy) || !Evicts(spec, policy, i)) return absl::OkStatus();
  const SequenceSpec& sequence = spec.sequences[i];
  uint64_t wanted = 0;
  if (UsesQueries(policy.score.scorer)) {
    wanted = std::min<uint64_t>(policy.window.last, sequence.physical_len);
    if (spec.inputs.source == AttentionSource::kColumnSums) wanted = 1;
  } else if (policy.score.scorer == Scorer::kExpectedAttention && !spec.inputs.query_mean) {
    wanted = sequence.physical_len;
  }
  if (sequence.rows_count >= wanted) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, StepField(i, "sequence.rows_count"),
               "an evicting call brings the newest query rows of the policy's window")
      .Got(sequence.rows_count)
      .Limit(wanted);
}

absl::Status CheckTrigger(const ObserveSpec& spec, const PolicySpec& policy, size_t i) {
  const uint32_t trigger = spec.steps[i].trigger;
  if (trigger == 0 || trigger >= *policy.budget.kept_tokens) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, StepField(i, "trigger"), "below the budget")
      .Got(trigger)
      .Limit(*policy.budget.kept_tokens);
}

// Draft rows are kept as queries; a sum of rows cannot be taken apart again.
absl::Status CheckSources(const ObserveSpec& spec, const PolicySpec& policy) {
  if (!KeepsSums(policy)) return absl::OkStatus();
  const bool sums = spec.inputs.source == AttentionSource::kColumnSums;
  if (sums && (policy.window.decay != 1 || policy.score.reduce == Reduce::kMax)) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums",
                 "decay and maxima are of single rows, and these are sums of several");
  }
  for (size_t i = 0; i < spec.steps.size(); ++i) {
    if (spec.steps[i].draft_rows == 0 || BringsQueries(spec.inputs.source)) continue;
    return Error(ErrorReason::kPolicyInvalid, StepField(i, "draft_rows"),
                 "draft rows need their queries");
  }
  if (policy.score.scorer != Scorer::kVatp || policy.score.reduce == Reduce::kSum ||
      policy.score.reduce == Reduce::kMean) {
    return absl::OkStatus();
  }
  return Error(ErrorReason::kPolicyInvalid, "policy.parts.reduce",
               "running sums of VATP are sums or means over the group");
}

absl::Status CheckTensors(const ObserveSpec& spec, const PolicySpec& policy) {
  const Scorer scorer = policy.score.scorer;
  const auto missing = [](std::string_view field) -> absl::Status {
    return Error(ErrorReason::kFieldMissing, field, "the scorer reads it");
  };
  if (scorer == Scorer::kCritical && !spec.inputs.output_projection) {
    return missing("inputs.output_projection");
  }
  if (scorer != Scorer::kExpectedAttention) return absl::OkStatus();
  if (!spec.inputs.query_mean && !spec.inputs.before_rope) return missing("inputs.query_mean");
  return spec.inputs.softmax_scale > 0 ? absl::OkStatus() : missing("inputs.softmax_scale");
}

absl::Status CheckProtect(const ObserveSpec& spec, const PolicySpec& policy, size_t i) {
  const ExplicitRows& protect = spec.sequences[i].protect;
  // Granularities are ordered from the finest to the coarsest.
  if (protect.lists.empty() || protect.granularity >= policy.granularity) return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, StepField(i, "sequence.protect.granularity"),
               "finer than the sets that the policy makes");
}

}  // namespace

bool KeepsSums(const PolicySpec& policy) {
  return policy.window.all && UsesQueries(policy.score.scorer);
}

bool Evicts(const ObserveSpec& spec, const PolicySpec& policy, size_t i) {
  const ObserveStep& step = spec.steps[i];
  if (!step.may_evict()) return false;
  const uint32_t trigger = step.trigger == 0 ? *policy.budget.kept_tokens : step.trigger;
  return spec.sequences[i].physical_len > trigger;
}

absl::StatusOr<PolicySpec> PolicyOf(const ObserveSpec& spec, std::span<const ScoresPtr> known) {
  std::optional<PolicySpec> policy = spec.policy;
  for (size_t i = 0; i < known.size() && !policy; ++i) {
    if (known[i] != nullptr) policy = known[i]->policy;
  }
  for (size_t i = 0; i < known.size(); ++i) {
    const bool begins = known[i] == nullptr || !known[i]->policy;
    if (!spec.policy && begins) {
      return absl::Status(Error(ErrorReason::kFieldMissing, "policy",
                                "the first call of a sequence names its policy")
                              .Index(i));
    }
    if (known[i] != nullptr && !Fits(*known[i], *policy)) return OtherPolicy(i);
  }
  return *policy;
}

absl::Status CheckSteps(const ObserveSpec& spec, const PolicySpec& policy,
                        std::span<const ScoresPtr> known) {
  KVTRIAGE_RETURN_IF_ERROR(CheckSources(spec, policy));
  KVTRIAGE_RETURN_IF_ERROR(CheckTensors(spec, policy));
  for (size_t i = 0; i < spec.steps.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(CheckLength(spec, policy, known[i].get(), i));
    KVTRIAGE_RETURN_IF_ERROR(CheckTrigger(spec, policy, i));
    KVTRIAGE_RETURN_IF_ERROR(CheckWindow(spec, policy, i));
    KVTRIAGE_RETURN_IF_ERROR(CheckProtect(spec, policy, i));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const RunningScores& scores, const PlanCache& cache) {
  if (scores.sums == nullptr) return absl::OkStatus();
  const std::vector<LayerSums>& layers = scores.sums->layers;
  bool fits = layers.empty() || layers.size() == cache.layers.size();
  for (size_t l = 0; fits && l < layers.size(); ++l) {
    fits = layers[l].lists <= 1 || layers[l].lists == cache.layers[l].kv_heads();
  }
  if (fits) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, "cache_id",
               "the running scores are of a cache with other layers or heads");
}

}  // namespace kvtriage
