// RegisterRegions: regions and the caches described in them.
#ifndef KVTRIAGE_SERVICE_VALIDATE_REGION_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_REGION_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/memory.pb.h"
#include "service/policy/register_spec.h"
#include "service/validate/limits.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in.
absl::StatusOr<RegisterSpec> ParseRegister(const v1::RegisterRegionsRequest& request,
                                           const Limits& limits);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_REGION_PROTO_H_
