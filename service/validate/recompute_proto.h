// SelectRecomputeRequest: everything that the message alone tells. Pure.
#ifndef KVTRIAGE_SERVICE_VALIDATE_RECOMPUTE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_RECOMPUTE_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/blend.pb.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in. With rows
// = 0 nothing is read, so the sources may be absent. Left to the planner: ids, block tables,
// whether both sources hold every candidate row, and heads and elems of a source in a cache.
absl::StatusOr<SelectRecomputeSpec> ParseSelectRecompute(const v1::SelectRecomputeRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_RECOMPUTE_PROTO_H_
