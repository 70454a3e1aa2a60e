// The tensors that single scorers read beside the source of attention, as views of each layer.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_SCORER_TENSORS_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_SCORER_TENSORS_H_

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Pins what the policy's scorer reads and sets it in the layers of every sequence, which are
// planned already. MEMORY_UNKNOWN, RANGE_OUT_OF_REGION, GEOMETRY_INVALID (extents against the
// cache). Fields name the tensor.
absl::Status PlanScorerTensors(SessionMemory& memory, const CompressSpec& spec, CompressPlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_SCORER_TENSORS_H_
