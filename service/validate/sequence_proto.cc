#include "service/validate/sequence_proto.h"

#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"
#include "service/validate/positions_proto.h"
#include "service/validate/row_lists_proto.h"

namespace kvtriage {
namespace {

absl::Status CheckLengths(const v1::SequenceSpec& sequence) {
  if (sequence.physical_len() > kMaxRowsPerSequence) {
    return Error(ErrorReason::kTooMany, "physical_len", "too many rows")
        .Got(sequence.physical_len())
        .Limit(kMaxRowsPerSequence);
  }
  const bool consistent =
      sequence.total_dropped() <= sequence.logical_len() &&
      sequence.physical_len() == sequence.logical_len() - sequence.total_dropped();
  if (consistent) return absl::OkStatus();
  const bool negative = sequence.total_dropped() > sequence.logical_len();
  return Error(ErrorReason::kSequenceStale, "physical_len", "not logical_len - total_dropped")
      .Got(sequence.physical_len())
      .Limit(negative ? 0 : sequence.logical_len() - sequence.total_dropped());
}

absl::Status ParseSharing(const v1::SequenceSpec& sequence, ActKind act, SequenceSpec& spec) {
  const bool required = act != ActKind::kSelectOnly;
  if (required || sequence.sharing() != v1::SHARING_UNSPECIFIED) {
    KVTRIAGE_RETURN_IF_ERROR(CheckEnum("sharing", sequence.sharing(), v1::Sharing_IsValid));
  }
  spec.sharing = static_cast<Sharing>(sequence.sharing());
  if (sequence.shared_blocks() != 0 && spec.sharing != Sharing::kPrefix) {
    return Invalid("shared_blocks", "only with SHARING_PREFIX");
  }
  if (sequence.shared_blocks() > spec.table.size()) {
    return Error(ErrorReason::kFieldInvalid, "shared_blocks", "more than table entries")
        .Got(sequence.shared_blocks())
        .Limit(spec.table.size());
  }
  const std::string& bitmap = sequence.shared_bitmap();
  const uint64_t want = spec.sharing == Sharing::kBitmap ? CeilDiv(spec.table.size(), 8) : 0;
  if (bitmap.size() != want) {
    return Error(ErrorReason::kFieldInvalid, "shared_bitmap", "needs one bit per table entry")
        .Got(bitmap.size())
        .Limit(want);
  }
  spec.shared_blocks = sequence.shared_blocks();
  spec.shared_bitmap.assign(bitmap.begin(), bitmap.end());
  return absl::OkStatus();
}

absl::Status ParseDestination(const v1::SequenceSpec& sequence, ActKind act, SequenceSpec& spec) {
  if (act != ActKind::kCopy) {
    return sequence.has_destination() ? Invalid("destination", "only for a copy")
                                      : absl::OkStatus();
  }
  return ParseTable("destination", sequence.has_destination(), sequence.destination(),
                    spec.physical_len > 0, spec.destination);
}

// The rows of the inputs that belong to this sequence, and what each may see.
absl::Status ParseInputRows(const v1::SequenceSpec& sequence, SequenceSpec& spec) {
  if (sequence.rows_count() > kMaxWindowRows) {
    return Error(ErrorReason::kTooMany, "rows_count", "too many query rows")
        .Got(sequence.rows_count())
        .Limit(kMaxWindowRows);
  }
  spec.rows_begin = sequence.rows_begin();
  spec.rows_count = sequence.rows_count();
  if (!sequence.has_row_limits()) return absl::OkStatus();
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("row_limits", sequence.row_limits().inline_le(), kMaxWindowRows, spec.row_limits));
  if (spec.row_limits.size() != spec.rows_count) {
    return Error(ErrorReason::kFieldInvalid, "row_limits", "needs one limit per query row")
        .Got(spec.row_limits.size())
        .Limit(spec.rows_count);
  }
  for (size_t i = 0; i < spec.row_limits.size(); ++i) {
    const uint64_t limit = static_cast<uint32_t>(spec.row_limits[i]);
    if (limit > spec.physical_len) {
      return Error(ErrorReason::kIndexOutOfRange, "row_limits", "sees rows past the sequence")
          .Index(i)
          .Got(limit)
          .Limit(spec.physical_len);
    }
  }
  return absl::OkStatus();
}

static_assert(static_cast<int>(Sharing::kAllPrivate) == v1::SHARING_ALL_PRIVATE);
static_assert(static_cast<int>(Sharing::kPrefix) == v1::SHARING_PREFIX);
static_assert(static_cast<int>(Sharing::kBitmap) == v1::SHARING_BITMAP);
static_assert(static_cast<int>(Sharing::kUnknown) == v1::SHARING_UNKNOWN);

}  // namespace

absl::Status ParseTable(std::string_view field, bool present, const v1::Int32Array& array,
                        bool required, std::vector<int32_t>& out) {
  if (!present || array.where_case() == v1::Int32Array::WHERE_NOT_SET) {
    return required ? Missing(field) : absl::OkStatus();
  }
  return ReadInt32s(field, array.inline_le(), kMaxBlocksPerTable, out);
}

absl::StatusOr<SequenceSpec> ParseSequence(const v1::SequenceSpec& sequence, ActKind act) {
  if (sequence.sequence_id() == 0) return Invalid("sequence_id", "must not be 0");
  KVTRIAGE_RETURN_IF_ERROR(CheckLengths(sequence));
  SequenceSpec spec;
  spec.sequence_id = sequence.sequence_id();
  spec.generation = sequence.generation();
  spec.kv_revision = sequence.kv_revision();
  spec.logical_len = sequence.logical_len();
  spec.physical_len = sequence.physical_len();
  spec.total_dropped = sequence.total_dropped();
  spec.first_slot = sequence.first_slot();
  KVTRIAGE_RETURN_IF_ERROR(ParseTable("table", sequence.has_table(), sequence.table(),
                                      spec.physical_len > 0, spec.table));
  KVTRIAGE_RETURN_IF_ERROR(ParseSharing(sequence, act, spec));
  KVTRIAGE_RETURN_IF_ERROR(ParseDestination(sequence, act, spec));
  KVTRIAGE_RETURN_IF_ERROR(ParseInputRows(sequence, spec));
  if (sequence.has_protect()) {
    auto protect = ParseRowLists(sequence.protect(), spec.physical_len);
    if (!protect.ok()) return UnderField(protect.status(), "protect");
    spec.protect = *std::move(protect);
  }
  if (sequence.has_positions()) {
    auto positions = ParsePositions(sequence.positions(), spec.physical_len);
    if (!positions.ok()) return UnderField(positions.status(), "positions");
    spec.positions = *std::move(positions);
  }
  return spec;
}

}  // namespace kvtriage
