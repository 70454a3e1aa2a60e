#include "service/validate/rerotate_proto.h"

#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/act_proto.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"
#include "service/validate/positions_proto.h"
#include "service/validate/sequence_proto.h"

namespace kvtriage {
namespace {

absl::Status ReadAct(const v1::RerotateRequest& request, const Limits& limits, ActSpec& act) {
  KVTRIAGE_RETURN_IF_ERROR(ParseAct(request.act(), limits, act));
  if (act.kind == ActKind::kSelectOnly) return Invalid("act", "must be copy_to or in_place");
  if (act.renumber) return Invalid("act.renumber", "the new positions are given");
  return absl::OkStatus();
}

absl::Status ReadSequence(const v1::RerotateRequest& request, RerotateSpec& spec) {
  auto sequence = ParseSequence(request.sequence(), spec.act.kind);
  if (!sequence.ok()) return UnderField(sequence.status(), "sequence");
  spec.sequence = *std::move(sequence);
  if (!spec.sequence.positions && spec.sequence.physical_len > 0) {
    return Missing("sequence.positions");
  }
  return absl::OkStatus();
}

absl::Status ReadRows(const v1::RerotateRequest& request, RerotateSpec& spec) {
  const uint64_t rows = spec.sequence.physical_len;
  if (!RangeFits(request.first_row(), request.rows(), rows)) {
    return Error(ErrorReason::kIndexOutOfRange, "rows", "rows end outside the sequence")
        .Got(uint64_t{request.first_row()} + request.rows())
        .Limit(rows);
  }
  spec.first_row = request.first_row();
  spec.rows = request.rows();
  auto positions = ParsePositions(request.new_positions(), spec.rows);
  if (!positions.ok()) return UnderField(positions.status(), "new_positions");
  spec.new_positions = *std::move(positions);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RerotateSpec> ParseRerotate(const v1::RerotateRequest& request,
                                           const Limits& limits) {
  RerotateSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  if (request.cache_id() == 0) return Missing("cache_id");
  spec.cache_id = request.cache_id();
  KVTRIAGE_RETURN_IF_ERROR(ParseLayers(request.layers_le(), spec.layers));
  KVTRIAGE_RETURN_IF_ERROR(ReadAct(request, limits, spec.act));
  KVTRIAGE_RETURN_IF_ERROR(ParseAngles("angles", request.angles(), spec.angles));
  KVTRIAGE_RETURN_IF_ERROR(ReadSequence(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadRows(request, spec));
  return spec;
}

}  // namespace kvtriage
