// Rerotate: keys of reused rows turned to the positions they have in the new text.
#ifndef KVTRIAGE_SERVICE_ENGINE_REROTATE_H_
#define KVTRIAGE_SERVICE_ENGINE_REROTATE_H_

#include "absl/status/status.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// In place under the ledger, or into a copy. Rows that stay at their position, layers without a
// rotary part, and V keep every byte; when no key turns, nothing is written in place. Errors: those
// of PlanOneSequence, DRAFT_PENDING, LAYER_NOT_MOVABLE, POSITIONS_UNKNOWN, FIELD_INVALID (planes of
// positions), BLOCK_SHARED, those of CheckDestinations, MOVE_FAILED.
absl::Status RunRerotate(const JobContext& context, const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_REROTATE_H_
