// RewindRequest: everything that the message alone tells. Pure.
#ifndef KVTRIAGE_SERVICE_VALIDATE_REWIND_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_REWIND_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/observe_spec.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in.
absl::StatusOr<RewindSpec> ParseRewind(const v1::RewindRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_REWIND_PROTO_H_
