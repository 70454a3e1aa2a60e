// One Rewind on the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_REWIND_H_
#define KVTRIAGE_SERVICE_ENGINE_REWIND_H_

#include "absl/status/status.h"
#include "service/engine/job.h"

namespace kvtriage {

// Forgets the newest draft rows of a sequence: they were never added to anything, so the scores are
// bit for bit as if they had not come. Touches no memory of the worker. SEQUENCE_STALE (an older
// generation), SEQUENCE_UNKNOWN (no running scores), REWIND_TOO_FAR (more than the outstanding
// ones: a float sum cannot be taken apart).
absl::Status RunRewind(const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_REWIND_H_
