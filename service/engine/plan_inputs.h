// What the call brings to score from, checked against the cache and the policy and cut into views.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_INPUTS_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_INPUTS_H_

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Whether the scorer can work from the source, and the kernels can read the views it needs.
// POLICY_INVALID (field "inputs" or a part of it), FIELD_MISSING (a tensor the scorer reads),
// UNSUPPORTED (scoring or measuring opaque rows).
absl::Status CheckInputs(const CompressSpec& spec, const PlanCache& cache);

// Pins the inputs and fills in `triage.layers` of every sequence (whose rows are planned already).
// MEMORY_UNKNOWN, RANGE_OUT_OF_REGION, GEOMETRY_INVALID (layers, heads, elems against the cache),
// FIELD_INVALID (rows). Fields name the tensor.
absl::Status PlanInputs(SessionMemory& memory, const CompressSpec& spec, CompressPlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_INPUTS_H_
