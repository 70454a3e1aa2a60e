// One layer's share of a call over many layers.
#ifndef KVTRIAGE_SERVICE_ENGINE_LAYER_SPEC_H_
#define KVTRIAGE_SERVICE_ENGINE_LAYER_SPEC_H_

#include <cstddef>

#include "service/engine/plan.h"

namespace kvtriage {

// The call for the one layer at `place` among the layers of `cache`, which `spec` was planned over:
// what Compress with just that layer would say, its rows of the inputs included.
CompressSpec SpecOfLayer(const CompressSpec& spec, const PlanCache& cache, size_t place);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LAYER_SPEC_H_
