// IndexLists: explicit protected rows of a sequence.
#ifndef KVTRIAGE_SERVICE_VALIDATE_ROW_LISTS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_ROW_LISTS_PROTO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Every list ascends without repeats inside [0, rows). The number of lists is checked for
// PER_SEQUENCE; for PER_LAYER and PER_HEAD that needs the cache.
absl::StatusOr<ExplicitRows> ParseRowLists(const v1::IndexLists& lists, uint64_t rows);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_ROW_LISTS_PROTO_H_
