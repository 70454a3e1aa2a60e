// One Compress on the lane, from its fences to its answer.
#ifndef KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_
#define KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_

#include "absl/status/status.h"
#include "service/engine/compress_run.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// Runs the job's CompressSpec and fills in the answer's body and its times of score, select,
// measure and move. Every error before the first move leaves the cache unharmed; MOVE_FAILED says
// SEE_LEDGER (a copy that fails leaves the sources unharmed and its destination blocks undefined).
absl::Status RunCompress(const JobContext& context, const Job& job, Answer& answer);

// Moves what `run` has prepared, in place under the slot that `spec` names.
MoveReport MoveWithSlot(const Job& job, const CompressSpec& spec, wire::LedgerOp op,
                        CompressRun& run);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_COMPRESS_JOB_H_
