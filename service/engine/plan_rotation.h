// Queries from before RoPE: what turns them.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_ROTATION_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_ROTATION_H_

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Whether every layer has the rotary data and every sequence the positions that the call's queries
// need. STAGE_MISMATCH (index = layer), FIELD_MISSING and FIELD_INVALID of positions, FIELD_INVALID
// (rows_count) for queries that have no row in the cache to take a position from.
absl::Status CheckRotation(const CompressSpec& spec, const PlanCache& cache);

// The rotation of one sequence's queries in one layer; none unless they are from before RoPE.
QueryRotation RotationOf(const ScoreInputsSpec& inputs, const PlanLayer& layer,
                         const SequenceSpec& sequence);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_ROTATION_H_
