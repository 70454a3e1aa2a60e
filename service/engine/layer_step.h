// The steps of a CompressLayers stream on the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_LAYER_STEP_H_
#define KVTRIAGE_SERVICE_ENGINE_LAYER_STEP_H_

#include "absl/status/status.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// Runs the step of job.stream that the job names and fills in the answer.
//   kOpen   fences, a plan of the whole call (so that what is wrong with any layer shows before one
//           is touched), RESULT_TOO_LARGE for the whole answer; opens the ledger slot.
//   kLayer  RunCompress for one layer, without fences: its unit of every sequence. All layers of a
//           sequence together are one change of it: every answer has the same new kv_revision.
//   kClose  closes the slot, tells the metrics and makes the whole answer; or, of a stream that
//           broke, returns how. A sequence of which only some layers were moved is forgotten.
absl::Status RunLayerStep(const JobContext& context, const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LAYER_STEP_H_
