// RerotateRequest: everything that the message alone tells. Pure.
#ifndef KVTRIAGE_SERVICE_VALIDATE_REROTATE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_REROTATE_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/blend.pb.h"
#include "service/policy/blend_spec.h"
#include "service/validate/limits.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in. Left to
// the planner: ids, block tables, sharing, how many planes of positions the layers' ropes need.
absl::StatusOr<RerotateSpec> ParseRerotate(const v1::RerotateRequest& request,
                                           const Limits& limits);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_REROTATE_PROTO_H_
