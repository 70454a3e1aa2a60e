// SequenceSpec: one sequence of a Compress, as far as the message alone tells.
#ifndef KVTRIAGE_SERVICE_VALIDATE_SEQUENCE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_SEQUENCE_PROTO_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Field names are relative ("table"). `act` decides whether sharing is required (every act that
// writes) and whether there is a destination (copy, only). Not checked: how many table entries are
// needed, and the entries themselves; those behind the needed ones may hold anything.
absl::StatusOr<SequenceSpec> ParseSequence(const v1::SequenceSpec& sequence, ActKind act);

// The ids of a block table. `required` = an absent array is FIELD_MISSING.
absl::Status ParseTable(std::string_view field, bool present, const v1::Int32Array& array,
                        bool required, std::vector<int32_t>& out);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_SEQUENCE_PROTO_H_
