// Fuse: recomputed K and V rows written over the cached ones.
#ifndef KVTRIAGE_SERVICE_ENGINE_FUSE_H_
#define KVTRIAGE_SERVICE_ENGINE_FUSE_H_

#include "absl/status/status.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// In place under the ledger; all other bytes stay. Errors: those of PlanOneSequence,
// INDEX_OUT_OF_RANGE and INDEX_INVALID (rows), FIELD_MISSING and FIELD_INVALID (values),
// GEOMETRY_INVALID (layers, heads, elems or type of a tensor), UNSUPPORTED (opaque rows, rows with
// a scale each), VIEW_OVERLAP (a tensor in the cache it is written to), BLOCK_SHARED, MOVE_FAILED.
absl::Status RunFuse(const JobContext& context, const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_FUSE_H_
