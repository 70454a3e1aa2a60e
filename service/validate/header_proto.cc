#include "service/validate/header_proto.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {

absl::StatusOr<RequestHeader> ParseHeader(bool present, const v1::RequestHeader& header) {
  if (!present) return Missing("header");
  const std::string& key = header.idempotency_key();
  if (key.empty()) return Missing("header.idempotency_key");
  if (key.size() != kIdempotencyKeyBytes) {
    return Error(ErrorReason::kFieldInvalid, "header.idempotency_key", "key length in bytes")
        .Got(key.size())
        .Limit(kIdempotencyKeyBytes);
  }
  RequestHeader result;
  std::copy(key.begin(), key.end(), result.key.begin());
  result.resolve = header.resolve();
  return result;
}

}  // namespace kvtriage
