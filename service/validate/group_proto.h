// Ranks that decide together.
#ifndef KVTRIAGE_SERVICE_VALIDATE_GROUP_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_GROUP_PROTO_H_

#include <optional>

#include "absl/status/status.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/group_spec.h"

namespace kvtriage {

// The group of a call, if it has one. FIELD_MISSING, FIELD_INVALID (fields "group....").
absl::Status ParseGroup(bool present, const v1::Group& group, std::optional<GroupSpec>& spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_GROUP_PROTO_H_
