// RequestHeader: the idempotency key.
#ifndef KVTRIAGE_SERVICE_VALIDATE_HEADER_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_HEADER_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// `present` = the request has a header. Fields are named from the request's root ("header...").
absl::StatusOr<RequestHeader> ParseHeader(bool present, const v1::RequestHeader& header);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_HEADER_PROTO_H_
