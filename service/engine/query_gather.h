// SelectRecompute's gather: the selected rows of Q, or of the residual stream, side by side.
#ifndef KVTRIAGE_SERVICE_ENGINE_QUERY_GATHER_H_
#define KVTRIAGE_SERVICE_ENGINE_QUERY_GATHER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/fuse.h"
#include "service/engine/pin_set.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// The copy of `rows` (absolute, ascending, not empty); points into `spec` and `from_row`, which it
// fills. Errors: those of ResolveRows for
// "gather.from" and of ResolveTensor for "gather.to", REGION_READ_ONLY, GEOMETRY_INVALID (heads,
// elems or type differ), DESTINATION_TOO_SMALL, VIEW_NOT_NESTED, VIEW_OVERLAP with anything that
// the call reads.
absl::StatusOr<RowCopy> PlanGather(SessionMemory& memory, const SelectRecomputeSpec& spec,
                                   std::span<const int32_t> rows, std::vector<int32_t>& from_row,
                                   PinSet& pins);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_QUERY_GATHER_H_
