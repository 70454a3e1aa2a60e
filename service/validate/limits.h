// Every number that bounds a request or the service. The constants are hard; `Limits` holds the
// values that an operator may configure, with their defaults. Counts are checked against them
// before anything is allocated for those counts.
#ifndef KVTRIAGE_SERVICE_VALIDATE_LIMITS_H_
#define KVTRIAGE_SERVICE_VALIDATE_LIMITS_H_

#include <cstdint>

namespace kvtriage {

inline constexpr uint32_t kApiRevision = 1;

// ---- requests
// ------------------------------------------------------------------------------------
inline constexpr uint32_t kIdempotencyKeyBytes = 16;
inline constexpr uint32_t kMaxClientNameBytes = 64;
inline constexpr uint32_t kMaxFingerprintBytes = 64;
inline constexpr uint32_t kIpcHandleBytes = 64;
inline constexpr uint32_t kMaxDeviceUuidBytes = 96;  // a MIG instance may be named by its GPU's
inline constexpr uint32_t kMaxSequencesPerCall = 256;
inline constexpr uint32_t kMaxBlocksPerTable = 1u << 24;
inline constexpr uint32_t kMaxRowsPerSequence = 1u << 24;
inline constexpr uint32_t kMaxWindowRows = 1u << 24;
inline constexpr uint32_t kMaxDraftRows = 64;  // of one sequence
inline constexpr uint64_t kMaxPosition = (uint64_t{1} << 31) - 1;
inline constexpr uint32_t kMaxPositionPlanes = 3;  // M-RoPE
inline constexpr uint32_t kMaxPoolKernel = 255;
inline constexpr uint32_t kMaxRanks = 64;  // of one group
inline constexpr uint32_t kMaxDefinedPolicies = 64;
inline constexpr uint32_t kMaxHiddenSize = 65'536;
inline constexpr uint32_t kMaxLag = 65'536;
inline constexpr uint32_t kMaxFuture = 65'536;
inline constexpr uint32_t kMaxPyramidBeta = 1u << 20;
inline constexpr uint64_t kMaxProbeBytes = uint64_t{64} << 20;

// ---- caches
// --------------------------------------------------------------------------------------
inline constexpr uint32_t kMaxLayersPerCache = 256;
inline constexpr uint32_t kMaxModelLayers = 4096;
inline constexpr uint32_t kMaxCompanionsPerLayer = 4;
inline constexpr uint32_t kMaxQueryHeads = 1024;
inline constexpr uint32_t kMaxKvHeads = 256;
inline constexpr uint32_t kMaxHeadSize = 576;
inline constexpr uint32_t kMaxOpaqueRowBytes = 8192;
inline constexpr uint32_t kMaxRopesPerCache = 8;
inline constexpr double kMaxRopeSpeed = 1e6;  // radians per position
inline constexpr uint32_t kMaxBlocksPerView = (uint32_t{1} << 31) - 1;
// Smaller numbers in a registration are 1-based indexes into its own regions.
inline constexpr uint64_t kFirstRegionId = uint64_t{1} << 32;

// ---- answers and errors
// --------------------------------------------------------------------------
inline constexpr uint32_t kMaxResponseBytes = 4u << 20;
inline constexpr uint32_t kMaxErrorTextBytes = 512;
inline constexpr uint32_t kMaxErrorDetailBytes = 1024;
inline constexpr uint32_t kMaxErrorIndices = 16;

// ---- sessions and the fd socket
// ------------------------------------------------------------------
inline constexpr uint32_t kHandshakeMs = 5'000;  // Attach's Hello, and HELLO on the fd socket
inline constexpr uint32_t kFdPacketBytes = 256;
inline constexpr uint32_t kMaxFdsPerPacket = 8;
inline constexpr uint32_t kMaxWaitingTickets = 32;
inline constexpr uint32_t kTicketLifeMs = 30'000;
inline constexpr uint32_t kMaxFdConnections = 64;
inline constexpr uint32_t kMaxQueuedNotices = 64;
inline constexpr uint32_t kMaxHealthWatchers = 16;

// ---- stored answers
// ------------------------------------------------------------------------------
inline constexpr uint32_t kMaxStoredAnswers = 64;  // per session
inline constexpr uint64_t kMaxStoredBytesPerSession = uint64_t{16} << 20;
inline constexpr uint32_t kMaxRememberedKeys = 4096;  // per session

// ---- deadlines
// -----------------------------------------------------------------------------------
inline constexpr uint32_t kDefaultDeadlineMs = 30'000;
inline constexpr uint32_t kMaxDeadlineMs = 120'000;
inline constexpr uint32_t kUnregisterDeadlineMs = 10'000;

// ---- what an operator may raise, and how far
// -----------------------------------------------------
inline constexpr uint32_t kHardMaxRequestBytes = 1u << 20;
inline constexpr uint32_t kHardMaxConnections = 1024;
inline constexpr uint32_t kHardMaxSessions = 10'000;
inline constexpr uint32_t kHardMaxBoundSessions = 1024;
inline constexpr uint32_t kHardMaxRegions = 4096;
inline constexpr uint32_t kHardMaxCaches = 64;
inline constexpr uint32_t kHardMaxInFlight = 8;
inline constexpr uint32_t kHardMaxLedgerBytes = 16u << 20;
inline constexpr uint32_t kHardMaxTrackedSequences = 65'536;
inline constexpr uint32_t kHardMaxGroups = 1024;

struct Limits {
  uint32_t max_request_bytes = 256u << 10;
  uint32_t max_connections = 128;
  uint32_t max_sessions = 256;
  uint32_t max_bound_sessions = 64;
  uint32_t max_regions = 512;  // per session
  uint32_t max_caches = 16;    // per session
  uint64_t max_host_bytes = uint64_t{4096} << 30;
  uint32_t max_in_flight = 4;  // jobs per session = ledger slots
  uint32_t ledger_bytes = 1u << 20;
  uint32_t lane_queue = 256;
  uint32_t max_tracked_sequences = 4096;           // per session
  uint64_t max_score_bytes = uint64_t{512} << 20;  // running scores of all sessions
  uint32_t result_ttl_ms = 60'000;
  uint64_t max_stored_bytes = uint64_t{256} << 20;  // of all sessions
  uint32_t max_groups = 64;                         // that wait for ranks
  uint64_t max_group_bytes = uint64_t{512} << 20;   // of scores that wait
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_LIMITS_H_
