// Positions: where rows are rotated, as far as the message alone tells.
#ifndef KVTRIAGE_SERVICE_VALIDATE_POSITIONS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_POSITIONS_PROTO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Of `rows` rows, each 0 .. 2^31-1. A list has one entry per row or three (the planes of M-RoPE);
// which of the two a layer needs is judged with the cache. Field names are relative ("list").
// FIELD_MISSING, FIELD_INVALID, TOO_MANY.
absl::StatusOr<PositionsSpec> ParsePositions(const v1::Positions& positions, uint64_t rows);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_POSITIONS_PROTO_H_
