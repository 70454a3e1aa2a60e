// One error vocabulary for the whole program. An error is an absl::Status whose payload says the
// reason, the request field, the first bad entry and the numbers involved; service/rpc turns it
// into a gRPC status with an ErrorDetail, and nothing else does.
#ifndef KVTRIAGE_KERNELS_CORE_ERROR_H_
#define KVTRIAGE_KERNELS_CORE_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace kvtriage {

// Same names and numbers as ErrorReason in proto/kvtriage/v1/types.proto (a test compares them).
enum class ErrorReason : int32_t {
  kUnspecified = 0,
  kFieldMissing = 1,
  kFieldInvalid = 2,
  kEnumUnspecified = 3,
  kGeometryOverflow = 4,
  kGeometryInvalid = 5,
  kTooMany = 6,
  kViewOverlap = 7,
  kViewNotNested = 8,
  kBlockDuplicate = 9,
  kBlockOutOfRange = 10,
  kTableTooShort = 11,
  kIndexInvalid = 12,
  kIndexOutOfRange = 13,
  kRangeOutOfRegion = 14,
  kPolicyUnknown = 15,
  kPolicyInvalid = 16,
  kLengthsUnequal = 17,
  kBudgetTooSmall = 18,
  kNoUsableRow = 19,
  kResultTooLarge = 20,
  kLedgerTooSmall = 21,
  kDeadlineTooLong = 22,
  kUnsupported = 24,
  kRopeUnsupported = 25,
  kStageMismatch = 26,
  kMemoryUnknown = 40,
  kTicketUnknown = 41,
  kRegionNotSealed = 42,
  kFdWrongType = 43,
  kFdTooSmall = 44,
  kHandleMalformed = 45,
  kGpuNotVisible = 46,
  kPidCollision = 47,
  kMapFailed = 48,
  kVmmMemory = 49,
  kPeerUnsupported = 50,
  kStaleGeneration = 51,
  kMigUnsupported = 52,
  kFingerprintMismatch = 53,
  kRegionReadOnly = 54,
  kRegionRetiring = 55,
  kMixedMemory = 56,
  kNoDevice = 57,
  kHandleInUse = 58,
  kQuotaBytes = 60,
  kSessionUnknown = 70,
  kSessionNotBound = 71,
  kSessionLimit = 72,
  kSessionEnded = 73,
  kApiRevision = 76,
  kQueueFull = 80,
  kSessionBusy = 81,
  kQuotaState = 82,
  kDeadlineUnmeetable = 83,
  kDraining = 84,
  kDeviceSick = 85,
  kSequenceUnknown = 90,
  kSequenceStale = 91,
  kSequenceReleased = 92,
  kBlockShared = 93,
  kDestinationOverlap = 94,
  kDestinationTooSmall = 95,
  kLedgerSlotBusy = 96,
  kKeyReused = 97,
  kResultExpired = 98,
  kKeyDead = 99,
  kRewindTooFar = 100,
  kLayerNotMovable = 101,
  kDraftPending = 102,
  kPositionsUnknown = 103,
  kGroupMismatch = 104,
  kDeviceLost = 110,
  kMoveFailed = 111,
  kDeviceMemory = 112,
  kInternal = 113,
};

// What an error means for the worker's cache.
enum class CacheState : uint8_t {
  kUnharmed = 1,   // byte for byte as before the call
  kSeeLedger = 2,  // read the ledger slot of this call
};

struct ErrorInfo {
  ErrorReason reason = ErrorReason::kUnspecified;
  std::string field;   // request path in our own words, e.g. "sequences[3].table"
  uint64_t index = 0;  // first bad entry
  uint64_t got = 0;    // a number that the caller itself sent, or a count
  uint64_t limit = 0;
  uint32_t retry_after_ms = 0;  // 0 = do not repeat the same call
  CacheState cache_state = CacheState::kUnharmed;
  std::vector<uint64_t> more_indices;  // further bad entries, at most 16
};

// Lower-case name of a reason ("field_invalid"): the metric label, the log field, the runbook word.
std::string_view ReasonName(ErrorReason reason);

// Every reason but kUnspecified, ascending.
const std::vector<ErrorReason>& AllReasons();

// The status code that belongs to a reason.
absl::StatusCode CodeOf(ErrorReason reason);

// Builds an error status. `text` is made of constants and numbers only (no strings a client sent)
// and says what was wrong: Error(kBlockOutOfRange, "sequences[0].table", "block id out of range")
//   .Index(7).Got(4096).Limit(2048). Numbers that were set are appended to the text.
class Error {
 public:
  Error(ErrorReason reason, std::string_view field, std::string_view text);
  Error& Index(uint64_t index);
  Error& Got(uint64_t got);
  Error& Limit(uint64_t limit);
  Error& RetryAfterMs(uint32_t ms);
  Error& State(CacheState state);
  Error& MoreIndices(std::vector<uint64_t> indices);
  Error& Code(absl::StatusCode code);  // overrides CodeOf(reason)
  operator absl::Status() const;       // NOLINT(google-explicit-constructor): returned as a status

 private:
  ErrorInfo info_;
  absl::StatusCode code_;
  std::string text_;
  bool has_index_ = false, has_got_ = false, has_limit_ = false;
};

// The details of an error made by Error; nothing for any other status.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// The same error with `prefix` put before its field ("sequences[3]." + "table"). A status without
// details is returned as it is.
absl::Status WithFieldPrefix(const absl::Status& status, std::string_view prefix);

// The same error with another field.
absl::Status WithField(const absl::Status& status, std::string_view field);

// The same error with another cache state.
absl::Status WithCacheState(const absl::Status& status, CacheState state);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_ERROR_H_
