#include "service/validate/positions_proto.h"

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

absl::Status ReadList(const v1::Int32Array& list, uint64_t rows, PositionsSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("list", list.inline_le(), rows * kMaxPositionPlanes, spec.list));
  if (spec.list.size() != rows && spec.list.size() != rows * kMaxPositionPlanes) {
    return Error(ErrorReason::kFieldInvalid, "list", "needs one position per row, or three planes")
        .Got(spec.list.size())
        .Limit(rows);
  }
  for (size_t i = 0; i < spec.list.size(); ++i) {
    if (spec.list[i] < 0) {
      return Error(ErrorReason::kFieldInvalid, "list", "negative position").Index(i);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PositionsSpec> ParsePositions(const v1::Positions& positions, uint64_t rows) {
  PositionsSpec spec;
  switch (positions.kind_case()) {
    case v1::Positions::kFirstPosition:
      if (positions.first_position() > kMaxPosition - rows + 1) {
        return Error(ErrorReason::kFieldInvalid, "first_position", "positions end above 2^31 - 1")
            .Got(positions.first_position())
            .Limit(kMaxPosition - rows + 1);
      }
      spec.first = positions.first_position();
      return spec;
    case v1::Positions::kList:
      KVTRIAGE_RETURN_IF_ERROR(ReadList(positions.list(), rows, spec));
      return spec;
    case v1::Positions::KIND_NOT_SET:
      break;
  }
  return Missing("");
}

}  // namespace kvtriage
