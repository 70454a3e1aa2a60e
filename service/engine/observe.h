// One Observe on the lane, from its fences to its answer.
#ifndef KVTRIAGE_SERVICE_ENGINE_OBSERVE_H_
#define KVTRIAGE_SERVICE_ENGINE_OBSERVE_H_

#include "absl/status/status.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// Adds what the new rows of every sequence see to its running scores, then cuts those over their
// budget back: a Compress of them alone, under the same ledger slot, fences and error rules, with
// fields named "steps[i].sequence...." for "sequences[i]....". Until it has succeeded nothing of a
// sequence's scores has changed. When a move fails, sequences that were cut back before it go on
// with their new scores, the failed one is forgotten, and to all others the call never happened.
absl::Status RunObserve(const JobContext& context, const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_OBSERVE_H_
