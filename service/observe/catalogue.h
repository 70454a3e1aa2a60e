// Metric names, help texts, label values and bucket bounds.
// Made by deploy/prometheus/make_catalogue.py from metrics.json: change that file and run the script.
// clang-format off
#ifndef KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_
#define KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_

#include <array>
#include <cstdint>

namespace kvtriage::catalogue {

enum class Type : uint8_t { kCounter, kGauge, kHistogram, kSummary };

struct Metric {
  Type type;
  const char* name;
  const char* help;
  uint32_t max_series;  // as lines of the page
};

inline constexpr uint32_t kSeriesLimit = 1500;

inline constexpr std::array<const char*, 1> kRoleValues = {
    "active",
};
inline constexpr std::array<const char*, 4> kOutcomeValues = {
    "applied", "advised", "unchanged", "failed",
};
inline constexpr std::array<const char*, 3> kRegionValues = {
    "sink", "middle", "recent",
};
inline constexpr std::array<const char*, 3> kVerdictValues = {
    "reused", "recompute", "fused",
};
inline constexpr std::array<const char*, 14> kMethodValues = {
    "Attach", "GetServerInfo", "RegisterRegions", "UnregisterRegions", "ListRegions", "Compress",
    "CompressLayers", "Observe", "ReleaseSequence", "Rewind", "SelectRecompute", "Rerotate", "Fuse",
    "ProbeMemory",
};
inline constexpr std::array<const char*, 7> kTimedValues = {
    "Compress", "CompressLayers", "Observe", "SelectRecompute", "Rerotate", "Fuse", "other",
};
inline constexpr std::array<const char*, 4> kResultValues = {
    "ok", "client_error", "server_error", "shed",
};
inline constexpr std::array<const char*, 17> kCodeValues = {
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
};
inline constexpr std::array<const char*, 8> kStageValues = {
    "validate", "queue", "plan", "score", "select", "measure", "move", "reply",
};
inline constexpr std::array<const char*, 4> kWorkValues = {
    "score", "select", "measure", "move",
};
inline constexpr std::array<const char*, 75> kReasonValues = {
    "field_missing", "field_invalid", "enum_unspecified", "geometry_overflow", "geometry_invalid",
    "too_many", "view_overlap", "view_not_nested", "block_duplicate", "block_out_of_range",
    "table_too_short", "index_invalid", "index_out_of_range", "range_out_of_region",
    "policy_unknown", "policy_invalid", "lengths_unequal", "budget_too_small", "no_usable_row",
    "result_too_large", "ledger_too_small", "deadline_too_long", "unsupported", "rope_unsupported",
    "stage_mismatch", "memory_unknown", "ticket_unknown", "region_not_sealed", "fd_wrong_type",
    "fd_too_small", "handle_malformed", "gpu_not_visible", "pid_collision", "map_failed",
    "vmm_memory", "peer_unsupported", "stale_generation", "mig_unsupported", "fingerprint_mismatch",
    "region_read_only", "region_retiring", "mixed_memory", "no_device", "handle_in_use",
    "quota_bytes", "session_unknown", "session_not_bound", "session_limit", "session_ended",
    "api_revision", "queue_full", "session_busy", "quota_state", "deadline_unmeetable", "draining",
    "device_sick", "sequence_unknown", "sequence_stale", "sequence_released", "block_shared",
    "destination_overlap", "destination_too_small", "ledger_slot_busy", "key_reused",
    "result_expired", "key_dead", "rewind_too_far", "layer_not_movable", "draft_pending",
    "positions_unknown", "group_mismatch", "device_lost", "move_failed", "device_memory",
    "internal",
};
inline constexpr std::array<const char*, 5> kCauseValues = {
    "client", "lease", "peer_died", "drain", "protocol",
};

inline constexpr std::array<double, 14> kSecondsBuckets = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
};
inline constexpr std::array<double, 10> kNearOneBuckets = {
    0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1,
};
inline constexpr std::array<double, 10> kErrorBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
};
inline constexpr std::array<double, 11> kShareBuckets = {
    0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
};

inline constexpr Metric kDecisionsTotal = {Type::kCounter, "kvtriage_decisions_total",
    "Decisions made. One decision is one sequence in one Compress or CompressLayers call, or one that an Observe has cut back, all its layers together.", 8};
inline constexpr Metric kTokensConsideredTotal = {Type::kCounter, "kvtriage_tokens_considered_total",
    "Cached tokens looked at, mean over layers and KV heads (so fractions occur).", 2};
inline constexpr Metric kTokensKeptTotal = {Type::kCounter, "kvtriage_tokens_kept_total",
    "Cached tokens kept, mean over layers and KV heads, by where they stood.", 6};
inline constexpr Metric kKeptRatio = {Type::kHistogram, "kvtriage_kept_ratio",
    "Share of a sequence's tokens kept, per decision.", 28};
inline constexpr Metric kAttentionMassRetainedRatio = {Type::kHistogram, "kvtriage_attention_mass_retained_ratio",
    "Share of the window's softmax mass that the kept set holds, mean over layers and KV heads, per decision of a policy that forms attention.", 26};
inline constexpr Metric kAttentionMassRetainedTailRatio = {Type::kHistogram, "kvtriage_attention_mass_retained_tail_ratio",
    "The same for the worst 5 % of (layer, KV head) pairs of a decision.", 26};
inline constexpr Metric kOutputErrorRatio = {Type::kHistogram, "kvtriage_output_error_ratio",
    "Exact relative error of the attention output, kept rows against all rows, pooled over rows and heads, mean over layers, per decision whose request asked for it.", 26};
inline constexpr Metric kOutputErrorTailRatio = {Type::kHistogram, "kvtriage_output_error_tail_ratio",
    "The same for the worst 5 % of (layer, KV head) pairs of a decision.", 26};
inline constexpr Metric kOracleRecallRatio = {Type::kHistogram, "kvtriage_oracle_recall_ratio",
    "Share of the exact-deletion oracle's kept set, at the same budget, that the policy also kept, per decision whose request asked for it. Protected tokens are left out.", 28};
inline constexpr Metric kLayerKeptRatio = {Type::kSummary, "kvtriage_layer_kept_ratio",
    "Sum and count of the kept share by layer group (no quantiles): divide the rates for the mean.", 128};
inline constexpr Metric kLayerMassRetainedRatio = {Type::kSummary, "kvtriage_layer_mass_retained_ratio",
    "Sum and count of the retained softmax mass by layer group.", 128};
inline constexpr Metric kBlendTokensTotal = {Type::kCounter, "kvtriage_blend_tokens_total",
    "Tokens of glued chunks: reused as cached, named for recomputing, fused back.", 3};
inline constexpr Metric kBlendCoveredDivergenceRatio = {Type::kHistogram, "kvtriage_blend_covered_divergence_ratio",
    "Share of the total divergence at the check layer that the selected tokens carry.", 14};
inline constexpr Metric kBlendLeftDivergenceRatio = {Type::kHistogram, "kvtriage_blend_left_divergence_ratio",
    "Largest relative divergence among the tokens that were left alone.", 13};
inline constexpr Metric kEvictedBytesTotal = {Type::kCounter, "kvtriage_evicted_bytes_total",
    "Bytes of rows dropped (logical).", 9};
inline constexpr Metric kReclaimableBytesTotal = {Type::kCounter, "kvtriage_reclaimable_bytes_total",
    "Bytes of whole blocks that an eviction left empty, which the engine can hand to others.", 9};
inline constexpr Metric kMovedBytesTotal = {Type::kCounter, "kvtriage_moved_bytes_total",
    "Bytes written by compaction and copy.", 9};
inline constexpr Metric kRegions = {Type::kGauge, "kvtriage_regions",
    "Regions mapped into the service.", 9};
inline constexpr Metric kMappedBytes = {Type::kGauge, "kvtriage_mapped_bytes",
    "Bytes of workers' memory mapped into the service.", 9};
inline constexpr Metric kUnmapsPending = {Type::kGauge, "kvtriage_unmaps_pending",
    "Regions whose unmapping has been asked for and is not finished.", 1};
inline constexpr Metric kRunningScoreBytes = {Type::kGauge, "kvtriage_running_score_bytes",
    "Bytes of running scores and draft rows' queries that Observe keeps, all sessions.", 1};
inline constexpr Metric kRunningScoreLimitBytes = {Type::kGauge, "kvtriage_running_score_limit_bytes",
    "The configured cap on them.", 1};
inline constexpr Metric kRunningScoresDroppedTotal = {Type::kCounter, "kvtriage_running_scores_dropped_total",
    "Sequences whose running scores were given up because they did not fit what became of its rows.", 1};
inline constexpr Metric kRpcRequestsTotal = {Type::kCounter, "kvtriage_rpc_requests_total",
    "Finished RPCs.", 56};
inline constexpr Metric kRpcCodesTotal = {Type::kCounter, "kvtriage_rpc_codes_total",
    "Finished RPCs by gRPC status.", 17};
inline constexpr Metric kRpcDurationSeconds = {Type::kHistogram, "kvtriage_rpc_duration_seconds",
    "Server-side time of an RPC, from its handler to its answer.", 119};
inline constexpr Metric kStageDurationSeconds = {Type::kHistogram, "kvtriage_stage_duration_seconds",
    "Wall time of each stage of a call that becomes a job; measure is the part that a request asked for.", 136};
inline constexpr Metric kDeviceBusySecondsTotal = {Type::kCounter, "kvtriage_device_busy_seconds_total",
    "Time the device's lane spent on our work.", 36};
inline constexpr Metric kQueueJobs = {Type::kGauge, "kvtriage_queue_jobs",
    "Jobs waiting for the device's lane.", 9};
inline constexpr Metric kQueueLimitJobs = {Type::kGauge, "kvtriage_queue_limit_jobs",
    "Length at which new work is refused.", 9};
inline constexpr Metric kRejectionsTotal = {Type::kCounter, "kvtriage_rejections_total",
    "Requests refused, by named reason.", 75};
inline constexpr Metric kSessions = {Type::kGauge, "kvtriage_sessions",
    "Attached sessions.", 1};
inline constexpr Metric kSessionsOpenedTotal = {Type::kCounter, "kvtriage_sessions_opened_total",
    "Sessions attached since start.", 1};
inline constexpr Metric kSessionsEndedTotal = {Type::kCounter, "kvtriage_sessions_ended_total",
    "Sessions ended, by cause.", 5};
inline constexpr Metric kReady = {Type::kGauge, "kvtriage_ready",
    "1 when new sessions and work are accepted.", 1};
inline constexpr Metric kDraining = {Type::kGauge, "kvtriage_draining",
    "1 from the start of a drain.", 1};
inline constexpr Metric kBuildInfo = {Type::kGauge, "kvtriage_build_info",
    "Always 1; labels tell the build.", 1};
inline constexpr Metric kConfigInfo = {Type::kGauge, "kvtriage_config_info",
    "Always 1; labels tell the running configuration.", 1};
inline constexpr Metric kProcessCpuSecondsTotal = {Type::kCounter, "process_cpu_seconds_total",
    "User and system CPU time.", 1};
inline constexpr Metric kProcessResidentMemoryBytes = {Type::kGauge, "process_resident_memory_bytes",
    "Resident memory.", 1};
inline constexpr Metric kProcessOpenFds = {Type::kGauge, "process_open_fds",
    "Open file descriptors.", 1};
inline constexpr Metric kProcessMaxFds = {Type::kGauge, "process_max_fds",
    "Limit on file descriptors.", 1};
inline constexpr Metric kProcessThreads = {Type::kGauge, "process_threads",
    "Threads.", 1};
inline constexpr Metric kProcessStartTimeSeconds = {Type::kGauge, "process_start_time_seconds",
    "Unix time of the start.", 1};

inline constexpr std::array<const Metric*, 44> kAll = {
    &kDecisionsTotal, &kTokensConsideredTotal, &kTokensKeptTotal, &kKeptRatio,
    &kAttentionMassRetainedRatio, &kAttentionMassRetainedTailRatio, &kOutputErrorRatio,
    &kOutputErrorTailRatio, &kOracleRecallRatio, &kLayerKeptRatio, &kLayerMassRetainedRatio,
    &kBlendTokensTotal, &kBlendCoveredDivergenceRatio, &kBlendLeftDivergenceRatio,
    &kEvictedBytesTotal, &kReclaimableBytesTotal, &kMovedBytesTotal, &kRegions, &kMappedBytes,
    &kUnmapsPending, &kRunningScoreBytes, &kRunningScoreLimitBytes, &kRunningScoresDroppedTotal,
    &kRpcRequestsTotal, &kRpcCodesTotal, &kRpcDurationSeconds, &kStageDurationSeconds,
    &kDeviceBusySecondsTotal, &kQueueJobs, &kQueueLimitJobs, &kRejectionsTotal, &kSessions,
    &kSessionsOpenedTotal, &kSessionsEndedTotal, &kReady, &kDraining, &kBuildInfo, &kConfigInfo,
    &kProcessCpuSecondsTotal, &kProcessResidentMemoryBytes, &kProcessOpenFds, &kProcessMaxFds,
    &kProcessThreads, &kProcessStartTimeSeconds,
};

}  // namespace kvtriage::catalogue

#endif  // KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_
