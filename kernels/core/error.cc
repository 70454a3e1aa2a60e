#include "kernels/core/error.h"

#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace kvtriage {
namespace {

constexpr char kPayloadUrl[] = "kvtriage/error";

struct ReasonRow {
  ErrorReason reason;
  std::string_view name;
  absl::StatusCode code;
};

using Code = absl::StatusCode;
constexpr std::array kReasons = {
    ReasonRow{ErrorReason::kFieldMissing, "field_missing", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kFieldInvalid, "field_invalid", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kEnumUnspecified, "enum_unspecified", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kGeometryOverflow, "geometry_overflow", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kGeometryInvalid, "geometry_invalid", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kTooMany, "too_many", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kViewOverlap, "view_overlap", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kViewNotNested, "view_not_nested", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kBlockDuplicate, "block_duplicate", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kBlockOutOfRange, "block_out_of_range", Code::kOutOfRange},
    ReasonRow{ErrorReason::kTableTooShort, "table_too_short", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kIndexInvalid, "index_invalid", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kIndexOutOfRange, "index_out_of_range", Code::kOutOfRange},
    ReasonRow{ErrorReason::kRangeOutOfRegion, "range_out_of_region", Code::kOutOfRange},
    ReasonRow{ErrorReason::kPolicyUnknown, "policy_unknown", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kPolicyInvalid, "policy_invalid", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kLengthsUnequal, "lengths_unequal", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kBudgetTooSmall, "budget_too_small", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kNoUsableRow, "no_usable_row", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kResultTooLarge, "result_too_large", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kLedgerTooSmall, "ledger_too_small", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kDeadlineTooLong, "deadline_too_long", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kUnsupported, "unsupported", Code::kUnimplemented},
    ReasonRow{ErrorReason::kRopeUnsupported, "rope_unsupported", Code::kUnimplemented},
    ReasonRow{ErrorReason::kStageMismatch, "stage_mismatch", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kMemoryUnknown, "memory_unknown", Code::kNotFound},
    ReasonRow{ErrorReason::kTicketUnknown, "ticket_unknown", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kRegionNotSealed, "region_not_sealed", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kFdWrongType, "fd_wrong_type", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kFdTooSmall, "fd_too_small", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kHandleMalformed, "handle_malformed", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kGpuNotVisible, "gpu_not_visible", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kPidCollision, "pid_collision", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kMapFailed, "map_failed", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kVmmMemory, "vmm_memory", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kPeerUnsupported, "peer_unsupported", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kStaleGeneration, "stale_generation", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kMigUnsupported, "mig_unsupported", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kFingerprintMismatch, "fingerprint_mismatch", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kRegionReadOnly, "region_read_only", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kRegionRetiring, "region_retiring", Code::kDeadlineExceeded},
    ReasonRow{ErrorReason::kMixedMemory, "mixed_memory", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kNoDevice, "no_device", Code::kUnavailable},
    ReasonRow{ErrorReason::kHandleInUse, "handle_in_use", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kQuotaBytes, "quota_bytes", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kSessionUnknown, "session_unknown", Code::kUnauthenticated},
    ReasonRow{ErrorReason::kSessionNotBound, "session_not_bound", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kSessionLimit, "session_limit", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kSessionEnded, "session_ended", Code::kAborted},
    ReasonRow{ErrorReason::kApiRevision, "api_revision", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kQueueFull, "queue_full", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kSessionBusy, "session_busy", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kQuotaState, "quota_state", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kDeadlineUnmeetable, "deadline_unmeetable", Code::kDeadlineExceeded},
    ReasonRow{ErrorReason::kDraining, "draining", Code::kUnavailable},
    ReasonRow{ErrorReason::kDeviceSick, "device_sick", Code::kUnavailable},
    ReasonRow{ErrorReason::kSequenceUnknown, "sequence_unknown", Code::kNotFound},
    ReasonRow{ErrorReason::kSequenceStale, "sequence_stale", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kSequenceReleased, "sequence_released", Code::kAborted},
    ReasonRow{ErrorReason::kBlockShared, "block_shared", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kDestinationOverlap, "destination_overlap", Code::kInvalidArgument},
    ReasonRow{ErrorReason::kDestinationTooSmall, "destination_too_small",
              Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kLedgerSlotBusy, "ledger_slot_busy", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kKeyReused, "key_reused", Code::kAlreadyExists},
    ReasonRow{ErrorReason::kResultExpired, "result_expired", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kKeyDead, "key_dead", Code::kCancelled},
    ReasonRow{ErrorReason::kRewindTooFar, "rewind_too_far", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kLayerNotMovable, "layer_not_movable", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kDraftPending, "draft_pending", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kPositionsUnknown, "positions_unknown", Code::kFailedPrecondition},
    ReasonRow{ErrorReason::kGroupMismatch, "group_mismatch", Code::kAborted},
    ReasonRow{ErrorReason::kDeviceLost, "device_lost", Code::kUnavailable},
    ReasonRow{ErrorReason::kMoveFailed, "move_failed", Code::kDataLoss},
    ReasonRow{ErrorReason::kDeviceMemory, "device_memory", Code::kResourceExhausted},
    ReasonRow{ErrorReason::kInternal, "internal", Code::kInternal},
};

const ReasonRow* Find(ErrorReason reason) {
  for (const ReasonRow& row : kReasons) {
    if (row.reason == reason) return &row;
  }
  return nullptr;
}

// The payload is numbers separated by spaces, then the field: it never leaves the process.
std::string Encode(const ErrorInfo& info) {
  std::string out = absl::StrCat(static_cast<int32_t>(info.reason), " ", info.index, " ", info.got,
                                 " ", info.limit, " ", info.retry_after_ms, " ",
                                 static_cast<int>(info.cache_state), " ", info.more_indices.size());
  for (const uint64_t index : info.more_indices) absl::StrAppend(&out, " ", index);
  absl::StrAppend(&out, " ", info.field);
  return out;
}

uint64_t TakeNumber(std::string_view& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  (void)error;  // only Encode writes payloads
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

absl::Status Attach(absl::StatusCode code, std::string_view text, const ErrorInfo& info) {
  absl::Status status(code, absl::string_view(text.data(), text.size()));
  status.SetPayload(kPayloadUrl, absl::Cord(Encode(info)));
  return status;
}

absl::Status Rebuild(const absl::Status& status, const ErrorInfo& info) {
  const absl::string_view message = status.message();
  return Attach(status.code(), std::string_view(message.data(), message.size()), info);
}

}  // namespace

std::string_view ReasonName(ErrorReason reason) {
  const ReasonRow* row = Find(reason);
  return row != nullptr ? row->name : "unspecified";
}

const std::vector<ErrorReason>& AllReasons() {
  static const auto* const all = [] {
    auto* reasons = new std::vector<ErrorReason>;
    for (const ReasonRow& row : kReasons) reasons->push_back(row.reason);
    return reasons;
  }();
  return *all;
}

absl::StatusCode CodeOf(ErrorReason reason) {
  const ReasonRow* row = Find(reason);
  return row != nullptr ? row->code : absl::StatusCode::kInternal;
}

Error::Error(ErrorReason reason, std::string_view field, std::string_view text)
    : code_(CodeOf(reason)), text_(text) {
  info_.reason = reason;
  info_.field = std::string(field);
}

Error& Error::Index(uint64_t index) {
  info_.index = index;
  has_index_ = true;
  return *this;
}

Error& Error::Got(uint64_t got) {
  info_.got = got;
  has_got_ = true;
  return *this;
}

Error& Error::Limit(uint64_t limit) {
  info_.limit = limit;
  has_limit_ = true;
  return *this;
}

Error& Error::RetryAfterMs(uint32_t ms) {
  info_.retry_after_ms = ms;
  return *this;
}

Error& Error::State(CacheState state) {
  info_.cache_state = state;
  return *this;
}

Error& Error::MoreIndices(std::vector<uint64_t> indices) {
  if (indices.size() > 16) indices.resize(16);
  info_.more_indices = std::move(indices);
  return *this;
}

Error& Error::Code(absl::StatusCode code) {
  code_ = code;
  return *this;
}

Error::operator absl::Status() const {
  std::string text = text_;
  if (has_index_) absl::StrAppend(&text, ", index ", info_.index);
  if (has_got_) absl::StrAppend(&text, ", got ", info_.got);
  if (has_limit_) absl::StrAppend(&text, ", limit ", info_.limit);
  return Attach(code_, text, info_);
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string encoded(*payload);
  std::string_view text = encoded;
  ErrorInfo info;
  info.reason = static_cast<ErrorReason>(TakeNumber(text));
  info.index = TakeNumber(text);
  info.got = TakeNumber(text);
  info.limit = TakeNumber(text);
  info.retry_after_ms = static_cast<uint32_t>(TakeNumber(text));
  info.cache_state = static_cast<CacheState>(TakeNumber(text));
  const uint64_t more = TakeNumber(text);
  for (uint64_t i = 0; i < more; ++i) info.more_indices.push_back(TakeNumber(text));
  info.field = std::string(text);
  return info;
}

absl::Status WithFieldPrefix(const absl::Status& status, std::string_view prefix) {
  std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info.has_value()) return status;
  info->field.insert(0, prefix);
  return Rebuild(status, *info);
}

absl::Status WithField(const absl::Status& status, std::string_view field) {
  std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info.has_value()) return status;
  info->field = std::string(field);
  return Rebuild(status, *info);
}

absl::Status WithCacheState(const absl::Status& status, CacheState state) {
  std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info.has_value()) return status;
  info->cache_state = state;
  return Rebuild(status, *info);
}

}  // namespace kvtriage
