// Whether an Observe fits the sequences it names and the policy they run under.
#ifndef KVTRIAGE_SERVICE_ENGINE_OBSERVE_CHECKS_H_
#define KVTRIAGE_SERVICE_ENGINE_OBSERVE_CHECKS_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "service/engine/plan.h"
#include "service/engine/running_scores.h"
#include "service/policy/observe_spec.h"

namespace kvtriage {

using ScoresPtr = std::shared_ptr<const RunningScores>;

// Whether sums are kept: else every eviction is computed afresh.
bool KeepsSums(const PolicySpec& policy);

// The policy that all steps run under; `known` has the scores of each, null for a sequence that
// begins. FIELD_MISSING (field "policy"): the first call of a sequence names it. POLICY_INVALID
// (field "policy"): another one than the sequence's.
absl::StatusOr<PolicySpec> PolicyOf(const ObserveSpec& spec, std::span<const ScoresPtr> known);

// Query rows, drafts, the trigger and the inputs against the policy and what is known.
// SEQUENCE_STALE (field "steps[i].sequence.physical_len"): rows that we have not seen;
// FIELD_INVALID, POLICY_INVALID, FIELD_MISSING.
absl::Status CheckSteps(const ObserveSpec& spec, const PolicySpec& policy,
                        std::span<const ScoresPtr> known);

// Whether sums fit the layers and heads of the cache. GEOMETRY_INVALID (field "cache_id").
absl::Status CheckShape(const RunningScores& scores, const PlanCache& cache);

// Whether step `i` evicts. With its policy known this is decided by numbers alone.
bool Evicts(const ObserveSpec& spec, const PolicySpec& policy, size_t i);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_OBSERVE_CHECKS_H_
