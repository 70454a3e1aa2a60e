#include "service/validate/act_proto.h"

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"

namespace kvtriage {
namespace {

static_assert(static_cast<int>(AngleMode::kExact) == v1::ANGLE_MODE_EXACT);
static_assert(static_cast<int>(AngleMode::kFp32Table) == v1::ANGLE_MODE_FP32_TABLE);

absl::Status ReadKind(const v1::Act& act, const Limits& limits, ActSpec& spec) {
  switch (act.kind_case()) {
    case v1::Act::kSelectOnly:
      spec.kind = ActKind::kSelectOnly;
      return absl::OkStatus();
    case v1::Act::kCopyTo:
      spec.kind = ActKind::kCopy;
      spec.destination_cache_id = act.copy_to().cache_id();
      return spec.destination_cache_id == 0 ? Missing("act.copy_to.cache_id") : absl::OkStatus();
    case v1::Act::kInPlace:
      spec.kind = ActKind::kInPlace;
      spec.ledger_slot = act.in_place().ledger_slot();
      return CheckLedgerSlot("act.in_place.ledger_slot", spec.ledger_slot, limits);
    case v1::Act::KIND_NOT_SET:
      break;
  }
  return Missing("act");
}

}  // namespace

absl::Status ParseAct(const v1::Act& act, const Limits& limits, ActSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(ReadKind(act, limits, spec));
  if (!act.has_renumber()) return absl::OkStatus();
  if (spec.kind == ActKind::kSelectOnly) {
    return Invalid("act.renumber", "only with an act that writes rows");
  }
  AngleMode mode = AngleMode::kExact;
  KVTRIAGE_RETURN_IF_ERROR(ParseAngles("act.renumber.angles", act.renumber().angles(), mode));
  spec.renumber = mode;
  return absl::OkStatus();
}

absl::Status ParseAngles(std::string_view field, v1::AngleMode angles, AngleMode& mode) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum(field, angles, v1::AngleMode_IsValid));
  mode = static_cast<AngleMode>(angles);
  return absl::OkStatus();
}

absl::Status CheckLedgerSlot(std::string_view field, uint32_t slot, const Limits& limits) {
  if (slot < limits.max_in_flight) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field, "no such ledger slot")
      .Got(slot)
      .Limit(limits.max_in_flight);
}

absl::Status ParseLayers(const std::string& layers_le, std::vector<uint32_t>& layers) {
  std::vector<int32_t> list;
  KVTRIAGE_RETURN_IF_ERROR(ReadInt32s("layers_le", layers_le, kMaxLayersPerCache, list));
  KVTRIAGE_RETURN_IF_ERROR(CheckRowList("layers_le", list, kMaxLayersPerCache));
  layers.assign(list.begin(), list.end());
  return absl::OkStatus();
}

}  // namespace kvtriage
