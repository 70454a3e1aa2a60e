#include "service/engine/kept_scores.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/core/error.h"
#include "service/engine/observe_checks.h"
#include "service/engine/plan_tables.h"

namespace kvtriage {
namespace {

// The scores of the kept rows; null when none fit.
std::shared_ptr<RunningScores> Gathered(const RunningScores& scores, const SequenceSpec& call,
                                        const TriageResult& result) {
  auto gathered = std::make_shared<RunningScores>(scores);
  gathered->followed = nullptr;
  gathered->rows = 0;
  for (const std::vector<int32_t>& list : result.kept) {
    gathered->rows = std::max<uint64_t>(gathered->rows, list.size());
  }
  gathered->dropped = call.logical_len - gathered->rows;
  if (scores.sums == nullptr) return gathered;
  gathered->sums = GatherSums(*scores.sums, result);
  return gathered->sums == nullptr ? nullptr : gathered;
}

}  // namespace

absl::Status CheckDrafts(SequenceTable& sequences, const CompressSpec& spec) {
  if (spec.act.kind == ActKind::kSelectOnly) return absl::OkStatus();
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const SequenceSpec& sequence = spec.sequences[i];
    const auto scores = sequences.ScoresOf(sequence.sequence_id, sequence.generation);
    if (scores == nullptr || scores->drafts == 0) continue;
    return Error(ErrorReason::kDraftPending, SequenceField(i, "sequence_id"),
                 "draft rows are outstanding: accept them with Observe or rewind them")
        .Index(i)
        .Got(scores->drafts);
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckStanding(const RunningScores* scores, const CompressSpec& spec,
                           const PlanCache& cache, size_t i) {
  const ScoreSpec& wanted = spec.policy.score;
  if (scores == nullptr || scores->sums == nullptr || scores->scorer != wanted.scorer ||
      scores->reduce != wanted.reduce) {
    return Error(ErrorReason::kPolicyInvalid, SequenceField(i, "sequence_id"),
                 "no queries came, and the sequence has no running scores of that kind")
        .Index(i);
  }
  if (scores->drafts != 0) {
    return Error(ErrorReason::kDraftPending, SequenceField(i, "sequence_id"),
                 "draft rows are outstanding: accept them with Observe or rewind them")
        .Index(i)
        .Got(scores->drafts);
  }
  const uint64_t rows = spec.sequences[i].physical_len;
  if (scores->rows != rows) {
    return Error(ErrorReason::kSequenceStale, SequenceField(i, "physical_len"),
                 "not the rows that were observed")
        .Index(i)
        .Got(rows)
        .Limit(scores->rows);
  }
  return CheckShape(*scores, cache);
}

}  // namespace

absl::StatusOr<ScoresOfSequences> StandingScores(SequenceTable& sequences, const CompressSpec& spec,
                                                 const PlanCache& cache) {
  ScoresOfSequences standing;
  if (!spec.from_running_scores) return standing;
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const SequenceSpec& sequence = spec.sequences[i];
    standing.push_back(Settled(sequences.ScoresOf(sequence.sequence_id, sequence.generation),
                               sequence.total_dropped));
    const absl::Status status = CheckStanding(standing.back().get(), spec, cache, i);
    if (!status.ok()) return status;
  }
  return standing;
}

std::shared_ptr<const RunningScores> ScoresAfter(const std::shared_ptr<const RunningScores>& scores,
                                                 SequenceEffect effect, const SequenceSpec& call,
                                                 const TriageResult& result) {
  if (effect == SequenceEffect::kMoved) return Gathered(*scores, call, result);
  auto stays = std::make_shared<RunningScores>(*scores);
  stays->followed = nullptr;
  if (effect == SequenceEffect::kNone || scores->drafts > 0) return stays;
  stays->followed = Gathered(*scores, call, result);
  return stays;
}

void KeepScores(SequenceTable& sequences, const std::shared_ptr<const RunningScores>& scores,
                SequenceEffect effect, const SequenceSpec& call, const TriageResult& result,
                EngineObserver* observer) {
  if (scores == nullptr) return;
  const auto settled = Settled(scores, call.total_dropped);
  auto after = settled == nullptr ? nullptr : ScoresAfter(settled, effect, call, result);
  // The second possibility is given up rather than the limit.
  if (after != nullptr && !after->lease->Resize(after->bytes())) {
    auto alone = std::make_shared<RunningScores>(*after);
    alone->followed = nullptr;
    alone->lease->Resize(alone->bytes());
    after = std::move(alone);
  }
  if (after == nullptr && observer != nullptr) observer->OnScoresDropped();
  sequences.SetScores(call.sequence_id, std::move(after));
}

void SeedScores(SequenceTable& sequences, RowSums sums, std::shared_ptr<ScoreLease> lease,
                SequenceEffect effect, const SequenceSpec& call, const PolicySpec& policy,
                const TriageResult& result, EngineObserver* observer) {
  auto seed = std::make_shared<RunningScores>();
  seed->lease = std::move(lease);
  seed->scorer = policy.score.scorer;
  seed->reduce = policy.score.reduce;
  seed->rows = call.physical_len;
  seed->dropped = call.total_dropped;
  seed->sums = std::make_shared<RowSums>(std::move(sums));
  sequences.SetScores(call.sequence_id, seed);
  KeepScores(sequences, seed, effect, call, result, observer);
}

absl::Status CheckScoreRoom(SequenceTable& sequences, const std::vector<SequenceSpec>& calls) {
  const std::optional<size_t> first = sequences.FirstWithoutScoreRoom(calls);
  if (!first) return absl::OkStatus();
  return Error(ErrorReason::kQuotaState, SequenceField(*first, "sequence_id"),
               "no more sequences of a session can have running scores")
      .Index(*first)
      .Got(calls.size());
}

absl::Status CheckAllLayers(const CompressPlan& plan) {
  const size_t all = plan.cache.registered->spec.layers.size();
  if (plan.cache.layers.size() == all) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, "keep_state",
               "running scores are of all layers of the cache")
      .Got(plan.cache.layers.size())
      .Limit(all);
}

absl::StatusOr<std::vector<std::shared_ptr<ScoreLease>>> ReserveSums(const SequenceTable& sequences,
                                                                     const CompressPlan& plan) {
  uint64_t lists = 0;
  for (const PlanLayer& layer : plan.cache.layers) lists += layer.kv_heads();
  std::vector<std::shared_ptr<ScoreLease>> leases;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    leases.push_back(sequences.NewLease());
    const uint64_t sums = plan.sequences[i].triage.rows * lists * sizeof(float);
    const uint64_t bytes = 2 * (RunningScores().bytes() + sums);
    if (leases.back()->Resize(bytes)) continue;
    return absl::Status(Error(ErrorReason::kQuotaState, SequenceField(i, "sequence_id"),
                              "memory for running scores, in bytes")
                            .Got(bytes)
                            .Limit(leases.back()->budget().limit()));
  }
  return leases;
}

}  // namespace kvtriage
