// One sequence of an Observe: what is known of it, what its new rows add, and what it becomes.
#ifndef KVTRIAGE_SERVICE_ENGINE_OBSERVE_STEP_H_
#define KVTRIAGE_SERVICE_ENGINE_OBSERVE_STEP_H_

#include <memory>

#include "absl/status/status.h"
#include "service/engine/fold_rows.h"
#include "service/engine/job_context.h"
#include "service/engine/observe_checks.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Nothing of the old scores changes until the call has succeeded; then `Next` takes their place.
// Memory that was reserved and not used is given back by the destructor.
class ObservedSequence {
 public:
  // `known` may be null: then `lease` is an empty one. All but the pointers outlive it.
  ObservedSequence(const PolicySpec& policy, const ObserveStep& step, ScoresPtr known,
                   std::shared_ptr<ScoreLease> lease);
  ~ObservedSequence();
  ObservedSequence(const ObservedSequence&) = delete;
  ObservedSequence& operator=(const ObservedSequence&) = delete;

  // Room for what Fold will keep and, with `evicts`, for a second possibility beside it.
  // QUOTA_STATE without a field.
  absl::Status Reserve(const PlanCache& cache, const PlanSequence& sequence, bool evicts);

  // Adds the drafts that the call accepts, then the new rows that are none. NO_USABLE_ROW and what
  // FoldRows says.
  absl::Status Fold(const JobContext& context, const PlanCache& cache,
                    const PlanSequence& sequence);

  // Chooses from the sums.
  absl::Status Triage(const JobContext& context, const TriageSequence& sequence,
                      TriageResult& result) const;

  bool started() const { return known_ == nullptr; }
  const std::shared_ptr<RunningScores>& next() const { return next_; }
  // `next` is the sequence's from now on.
  void Commit() { committed_ = true; }

 private:
  std::vector<TriageLayer> NewRows(const PlanSequence& sequence, uint32_t rows) const;

  const PolicySpec& policy_;
  const ObserveStep& step_;
  const ScoresPtr known_;
  const std::shared_ptr<ScoreLease> lease_;
  const uint64_t leased_before_;
  std::shared_ptr<RunningScores> next_;
  FoldCounts counts_;
  bool committed_ = false;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_OBSERVE_STEP_H_
