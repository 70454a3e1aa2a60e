// What calls leave of running scores.
#ifndef KVTRIAGE_SERVICE_ENGINE_KEPT_SCORES_H_
#define KVTRIAGE_SERVICE_ENGINE_KEPT_SCORES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "service/engine/engine_observer.h"
#include "service/engine/plan.h"
#include "service/engine/running_scores.h"
#include "service/engine/sequence_table.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// DRAFT_PENDING (field "sequences[i].sequence_id") when a call that writes names a sequence with
// outstanding draft rows: their queries would stand for other rows.
absl::Status CheckDrafts(SequenceTable& sequences, const CompressSpec& spec);

using ScoresOfSequences = std::vector<std::shared_ptr<const RunningScores>>;

// The running scores that a planned call without queries is decided by, one per sequence; none when
// it does not ask for them (CompressSpec::from_running_scores). POLICY_INVALID (field
// "sequences[i].sequence_id"): there are none, or they are sums of something else; DRAFT_PENDING;
// SEQUENCE_STALE (field "sequences[i].physical_len"): rows have come that were not observed;
// GEOMETRY_INVALID (field "cache_id"): they are of another cache.
absl::StatusOr<ScoresOfSequences> StandingScores(SequenceTable& sequences, const CompressSpec& spec,
                                                 const PlanCache& cache);

// Scores (settled for the call, of `physical_len` rows) after a call that kept the lists of
// `result`: gathered with them when the rows have moved, as a second possibility when the worker
// may follow the answer or not. Null: no scores fit what has become of the sequence, because the
// lists have different lengths or leave layers out.
std::shared_ptr<const RunningScores> ScoresAfter(const std::shared_ptr<const RunningScores>& scores,
                                                 SequenceEffect effect, const SequenceSpec& call,
                                                 const TriageResult& result);

// Puts what `call` leaves of the sequence's scores into its record, once that has its new lengths.
// `scores` are those of before it. Tells `observer` (may be null) when they are lost.
void KeepScores(SequenceTable& sequences, const std::shared_ptr<const RunningScores>& scores,
                SequenceEffect effect, const SequenceSpec& call, const TriageResult& result,
                EngineObserver* observer);

// The same with `keep_state`: `sums` of all rows take the place of what there was. `lease` has room
// for them and, unless rows have moved, for those of the kept rows.
void SeedScores(SequenceTable& sequences, RowSums sums, std::shared_ptr<ScoreLease> lease,
                SequenceEffect effect, const SequenceSpec& call, const PolicySpec& policy,
                const TriageResult& result, EngineObserver* observer);

// QUOTA_STATE (field "sequences[i].sequence_id") when a call's sequences cannot all have running
// scores (SequenceTable::FirstWithoutScoreRoom).
absl::Status CheckScoreRoom(SequenceTable& sequences, const std::vector<SequenceSpec>& calls);

// FIELD_INVALID (field "keep_state") when the plan leaves layers of its cache out: Observe is about
// all of them.
absl::Status CheckAllLayers(const CompressPlan& plan);

// One lease per sequence of the plan: room for the sums of all its rows, and once more for those of
// the kept ones. QUOTA_STATE (field "sequences[i].sequence_id").
absl::StatusOr<std::vector<std::shared_ptr<ScoreLease>>> ReserveSums(const SequenceTable& sequences,
                                                                     const CompressPlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_KEPT_SCORES_H_
