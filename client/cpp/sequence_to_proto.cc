#include "client/cpp/sequence_to_proto.h"

#include "client/cpp/int32_bytes.h"

namespace kvtriage::client {
namespace {

static_assert(static_cast<int>(Sharing::kUnknown) == v1::SHARING_UNKNOWN);
static_assert(static_cast<int>(Sharing::kBitmap) == v1::SHARING_BITMAP);

void SetArray(v1::Int32Array* to, const std::vector<int32_t>& from) {
  to->set_inline_le(ToBytes(from));
}

v1::IndexLists ToProto(const RowLists& rows) {
  v1::IndexLists out;
  out.set_granularity(static_cast<v1::Granularity>(rows.granularity));
  std::vector<int32_t> counts, all;
  for (const std::vector<int32_t>& list : rows.lists) {
    counts.push_back(static_cast<int32_t>(list.size()));
    all.insert(all.end(), list.begin(), list.end());
  }
  out.set_counts_le(ToBytes(counts));
  out.set_indices_le(ToBytes(all));
  return out;
}

}  // namespace

v1::Positions ToProto(const Positions& positions) {
  v1::Positions out;
  if (const auto* const first = std::get_if<uint64_t>(&positions)) {
    out.set_first_position(*first);
  } else {
    SetArray(out.mutable_list(), std::get<std::vector<int32_t>>(positions));
  }
  return out;
}

v1::SequenceSpec ToProto(const Sequence& from) {
  v1::SequenceSpec out;
  out.set_sequence_id(from.sequence_id);
  out.set_generation(from.generation);
  out.set_kv_revision(from.kv_revision);
  out.set_logical_len(from.logical_len);
  out.set_physical_len(from.physical_len);
  const bool sane = from.logical_len >= from.physical_len;  // else the service refuses it
  out.set_total_dropped(sane ? from.logical_len - from.physical_len : 0);
  out.set_first_slot(from.first_slot);
  SetArray(out.mutable_table(), from.table);
  out.set_sharing(static_cast<v1::Sharing>(from.sharing));
  out.set_shared_blocks(from.shared_blocks);
  out.set_shared_bitmap(from.shared_bitmap.data(), from.shared_bitmap.size());
  if (!from.destination.empty()) SetArray(out.mutable_destination(), from.destination);
  out.set_rows_begin(from.rows_begin);
  out.set_rows_count(from.rows_count);
  if (!from.row_limits.empty()) SetArray(out.mutable_row_limits(), from.row_limits);
  if (from.protect.has_value()) *out.mutable_protect() = ToProto(*from.protect);
  if (from.positions.has_value()) *out.mutable_positions() = ToProto(*from.positions);
  return out;
}

}  // namespace kvtriage::client
