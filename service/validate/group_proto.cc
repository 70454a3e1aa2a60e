#include "service/validate/group_proto.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

absl::Status CheckBelow(std::string_view field, uint32_t value, uint32_t end) {
  if (value < end) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field, "must be below the limit").Got(value).Limit(end);
}

}  // namespace

absl::Status ParseGroup(bool present, const v1::Group& group, std::optional<GroupSpec>& spec) {
  if (!present) return absl::OkStatus();
  GroupSpec parsed;
  const std::string& key = group.group_key();
  if (key.empty()) return Missing("group.group_key");
  if (key.size() != parsed.key.size()) {
    return Error(ErrorReason::kFieldInvalid, "group.group_key", "key length in bytes")
        .Got(key.size())
        .Limit(parsed.key.size());
  }
  std::copy(key.begin(), key.end(), parsed.key.begin());
  KVTRIAGE_RETURN_IF_ERROR(CheckRange("group.size", group.size(), kMaxRanks));
  KVTRIAGE_RETURN_IF_ERROR(CheckBelow("group.rank", group.rank(), group.size()));
  KVTRIAGE_RETURN_IF_ERROR(
      CheckRange("group.total_kv_heads", group.total_kv_heads(), kMaxRanks * kMaxKvHeads));
  KVTRIAGE_RETURN_IF_ERROR(
      CheckBelow("group.first_kv_head", group.first_kv_head(), group.total_kv_heads()));
  parsed.rank = group.rank();
  parsed.size = group.size();
  parsed.first_kv_head = group.first_kv_head();
  parsed.total_kv_heads = group.total_kv_heads();
  spec = parsed;
  return absl::OkStatus();
}

}  // namespace kvtriage
