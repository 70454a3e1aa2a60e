// FuseRequest: everything that the message alone tells. Pure.
#ifndef KVTRIAGE_SERVICE_VALIDATE_FUSE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_FUSE_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/blend.pb.h"
#include "service/policy/blend_spec.h"
#include "service/validate/limits.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in. Left to
// the planner: ids, block tables, sharing, layers, heads, elems and types of the tensors.
absl::StatusOr<FuseSpec> ParseFuse(const v1::FuseRequest& request, const Limits& limits);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_FUSE_PROTO_H_
