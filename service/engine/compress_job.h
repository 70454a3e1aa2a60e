// One Compress on the lane, from its fences to its answer.
#ifndef KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_
#define KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/engine/compress_run.h"
#include "service/engine/group_part.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"
#include "service/engine/running_scores.h"

namespace kvtriage {

// Runs the job's CompressSpec and fills in the answer's body and its times of score, select,
// measure and move. Every error before the first move leaves the cache unharmed; MOVE_FAILED says
// SEE_LEDGER (a copy that fails leaves the sources unharmed and its destination blocks undefined).
absl::Status RunCompress(const JobContext& context, const Job& job, Answer& answer);

// Moves what `run` has prepared, in place under the slot that `spec` names.
MoveReport MoveWithSlot(const Job& job, const CompressSpec& spec, wire::LedgerOp op,
                        CompressRun& run);

// The first half of a rank's Compress: everything until its scores. `job`, `answer` and what
// `context` points to outlive the part.
absl::StatusOr<std::unique_ptr<GroupPart>> ScoreCompressPart(const JobContext& context,
                                                             const Job& job, Answer& answer);

// keep_state: room for the running scores of every sequence; else empty.
using ScoreLeases = std::vector<std::shared_ptr<ScoreLease>>;

// The end of a Compress whose run is prepared: the ledger's slot, the moves, the books.
void OpenCompress(const Job& job, const CompressSpec& spec, const CompressRun& run);
absl::Status ApplyCompress(EngineObserver* observer, const Job& job, const CompressSpec& spec,
                           CompressAnswer& answer, CompressRun& run, ScoreLeases leases);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_
