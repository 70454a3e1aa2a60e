#include "service/validate/fuse_proto.h"

#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/act_proto.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"
#include "service/validate/sequence_proto.h"
#include "service/validate/view_proto.h"

namespace kvtriage {
namespace {

absl::Status ReadRows(const v1::FuseRequest& request, FuseSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(
      CheckEnum("write_back", request.write_back(), v1::FuseRequest::WriteBack_IsValid));
  spec.full = request.write_back() == v1::FuseRequest::WRITE_BACK_FULL;
  if (spec.full) {
    return request.rows_le().empty()
               ? absl::OkStatus()
               : Invalid("rows_le", "must be empty when all rows are written");
  }
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("rows_le", request.rows_le(), kMaxRowsPerSequence, spec.rows));
  return CheckRowList("rows_le", spec.rows, spec.sequence.physical_len);
}

absl::Status ReadTensor(const std::string& field, bool present, const v1::Tensor& tensor,
                        uint64_t rows, std::optional<TensorSpec>& out) {
  if (!present) return absl::OkStatus();
  auto parsed = ParseTensor(tensor);
  if (!parsed.ok()) return UnderField(parsed.status(), field);
  if (parsed->rows != rows) {
    return Error(ErrorReason::kFieldInvalid, field + ".rows", "needs one row per row to write")
        .Got(parsed->rows)
        .Limit(rows);
  }
  out = *parsed;
  return absl::OkStatus();
}

absl::Status ReadTensors(const v1::FuseRequest& request, FuseSpec& spec) {
  const uint64_t rows = spec.full ? spec.sequence.physical_len : spec.rows.size();
  if (rows == 0) return absl::OkStatus();
  if (!request.has_keys()) return Missing("keys");
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("keys", true, request.keys(), rows, spec.keys));
  return ReadTensor("values", request.has_values(), request.values(), rows, spec.values);
}

}  // namespace

absl::StatusOr<FuseSpec> ParseFuse(const v1::FuseRequest& request, const Limits& limits) {
  FuseSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  if (request.cache_id() == 0) return Missing("cache_id");
  spec.cache_id = request.cache_id();
  KVTRIAGE_RETURN_IF_ERROR(ParseLayers(request.layers_le(), spec.layers));
  if (!request.has_in_place()) return Missing("in_place");
  spec.ledger_slot = request.in_place().ledger_slot();
  KVTRIAGE_RETURN_IF_ERROR(CheckLedgerSlot("in_place.ledger_slot", spec.ledger_slot, limits));
  auto sequence = ParseSequence(request.sequence(), ActKind::kInPlace);
  if (!sequence.ok()) return UnderField(sequence.status(), "sequence");
  spec.sequence = *std::move(sequence);
  KVTRIAGE_RETURN_IF_ERROR(ReadRows(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadTensors(request, spec));
  return spec;
}

}  // namespace kvtriage
