#include "service/engine/observe_step.h"

#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/draft_rows.h"

namespace kvtriage {
namespace {

uint64_t HeadsOf(const PlanCache& cache) {
  uint64_t heads = 0;
  for (const PlanLayer& layer : cache.layers) heads += layer.kv_heads();
  return heads;
}

}  // namespace

ObservedSequence::ObservedSequence(const PolicySpec& policy, const ObserveStep& step,
                                   ScoresPtr known, std::shared_ptr<ScoreLease> lease)
    : policy_(policy),
      step_(step),
      known_(std::move(known)),
      lease_(std::move(lease)),
      leased_before_(lease_->bytes()) {}

ObservedSequence::~ObservedSequence() {
  if (!committed_) lease_->Resize(leased_before_);
}

absl::Status ObservedSequence::Reserve(const PlanCache& cache, const PlanSequence& sequence,
                                       bool evicts) {
  uint64_t bytes = RunningScores().bytes() * (evicts ? 2 : 1);
  if (KeepsSums(policy_)) {
    const uint64_t kept = evicts ? *policy_.budget.kept_tokens : 0;
    bytes += (sequence.triage.rows + kept) * HeadsOf(cache) * sizeof(float);
    if (step_.draft_rows > 0) bytes += DraftBytes(sequence.triage.layers, step_.draft_rows);
  }
  // Less is given back when the call has succeeded.
  if (bytes <= lease_->bytes() || lease_->Resize(bytes)) return absl::OkStatus();
  return Error(ErrorReason::kQuotaState, "", "memory for running scores, in bytes")
      .Got(bytes)
      .Limit(lease_->budget().limit());
}

std::vector<TriageLayer> ObservedSequence::NewRows(const PlanSequence& sequence,
                                                   uint32_t rows) const {
  std::vector<TriageLayer> layers = sequence.triage.layers;
  for (TriageLayer& layer : layers) {
    AttentionInput& input = layer.input;
    for (TensorView* view : {&input.q, &input.o, &input.lse, &input.a, &input.z}) {
      if (*view) view->rows = rows;
    }
  }
  return layers;
}

absl::Status ObservedSequence::Fold(const JobContext& context, const PlanCache& cache,
                                    const PlanSequence& sequence) {
  next_ = known_ == nullptr ? std::make_shared<RunningScores>()
                            : std::make_shared<RunningScores>(*known_);
  next_->lease = lease_;
  next_->policy = policy_;
  next_->scorer = policy_.score.scorer;
  next_->reduce = policy_.score.reduce;
  next_->followed = nullptr;
  next_->draft = nullptr;
  next_->rows = sequence.spec->physical_len;
  next_->dropped = sequence.spec->total_dropped;
  next_->drafts = step_.draft_rows;
  if (!KeepsSums(policy_)) return absl::OkStatus();

  RowSums sums;
  if (known_ != nullptr && known_->sums != nullptr) sums = *known_->sums;
  const uint32_t end = sequence.triage.rows - step_.draft_rows;
  Extend(end, sums);
  if (known_ != nullptr && known_->drafts > 0) {
    const auto drafts = DraftInputs(*known_->draft, known_->drafts, cache, sequence.triage.layers);
    KVTRIAGE_RETURN_IF_ERROR(FoldRows(context.host_inputs, drafts,
                                      static_cast<uint32_t>(known_->rows), known_->drafts, policy_,
                                      context.stop, sums, counts_));
  }
  const uint32_t rows = sequence.spec->rows_count - step_.draft_rows;
  KVTRIAGE_RETURN_IF_ERROR(FoldRows(context.backend, NewRows(sequence, rows), end, rows, policy_,
                                    context.stop, sums, counts_));
  KVTRIAGE_RETURN_IF_ERROR(CheckUsable(counts_));
  FillEmpty(sequence.triage.layers, sums);
  next_->sums = std::make_shared<RowSums>(std::move(sums));
  if (step_.draft_rows > 0) {
    KVTRIAGE_ASSIGN_OR_RETURN(next_->draft,
                              KeepDrafts(sequence.triage.layers, step_.draft_rows, context.copier));
  }
  return absl::OkStatus();
}

absl::Status ObservedSequence::Triage(const JobContext& context, const TriageSequence& sequence,
                                      TriageResult& result) const {
  ScoredSequence scored;
  KVTRIAGE_RETURN_IF_ERROR(ScoreSums(context.host_inputs, sequence, policy_, *next_->sums,
                                     context.stop, scored, result));
  KVTRIAGE_RETURN_IF_ERROR(
      SelectSequence(context.backend, sequence, policy_, {}, context.stop, scored, result));
  for (size_t l = 0; l < counts_.skipped.size(); ++l) {
    result.layers[l].skipped_rows = static_cast<uint32_t>(counts_.skipped[l]);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
