// The recomputed rows of a Fuse at their real addresses.
#ifndef KVTRIAGE_SERVICE_ENGINE_FUSE_SOURCES_H_
#define KVTRIAGE_SERVICE_ENGINE_FUSE_SOURCES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/fuse.h"
#include "service/engine/plan.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// One copy per layer for K, then one per layer for V, from the tensors to rows spec.rows (all, when
// full) of the plan's only sequence. Points into `spec`; pins go to the plan. Errors: fuse.h.
absl::StatusOr<std::vector<RowCopy>> ResolveFuse(SessionMemory& memory, const FuseSpec& spec,
                                                 CompressPlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_FUSE_SOURCES_H_
