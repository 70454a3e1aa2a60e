#include "client/cpp/blend_proto.h"

#include "client/cpp/cache_to_proto.h"
#include "client/cpp/int32_bytes.h"
#include "client/cpp/sequence_to_proto.h"

namespace kvtriage::client {

static_assert(static_cast<int>(AngleMode::kExact) == v1::ANGLE_MODE_EXACT);
static_assert(static_cast<int>(AngleMode::kFp32Table) == v1::ANGLE_MODE_FP32_TABLE);

v1::RerotateRequest ToProto(const RerotateRequest& request, uint32_t ledger_slot,
                            const MemoryIds& ids) {
  v1::RerotateRequest out;
  out.set_cache_id(ids.IdOf(request.cache));
  out.set_layers_le(ToBytes(request.layers));
  *out.mutable_sequence() = ToProto(request.sequence);
  out.set_first_row(request.first_row);
  out.set_rows(request.rows);
  *out.mutable_new_positions() = ToProto(request.new_positions);
  out.set_angles(static_cast<v1::AngleMode>(request.angles));
  if (const auto* const copy = std::get_if<CopyTo>(&request.act)) {
    out.mutable_act()->mutable_copy_to()->set_cache_id(ids.IdOf(copy->cache));
  } else {
    out.mutable_act()->mutable_in_place()->set_ledger_slot(ledger_slot);
  }
  return out;
}

v1::FuseRequest ToProto(const FuseRequest& request, uint32_t ledger_slot, const MemoryIds& ids) {
  v1::FuseRequest out;
  out.set_cache_id(ids.IdOf(request.cache));
  out.set_layers_le(ToBytes(request.layers));
  *out.mutable_sequence() = ToProto(request.sequence);
  out.set_write_back(request.rows.has_value() ? v1::FuseRequest::WRITE_BACK_PARTIAL
                                              : v1::FuseRequest::WRITE_BACK_FULL);
  if (request.rows.has_value()) out.set_rows_le(ToBytes(*request.rows));
  if (request.keys.region.handle != 0) *out.mutable_keys() = ToProto(request.keys, ids);
  if (request.values.region.handle != 0) *out.mutable_values() = ToProto(request.values, ids);
  out.mutable_in_place()->set_ledger_slot(ledger_slot);
  return out;
}

}  // namespace kvtriage::client
