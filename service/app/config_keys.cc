#include "service/app/config_keys.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "service/app/config_values.h"

namespace kvtriage {
namespace {

using Text = std::string_view;

template <typename Parsed, typename Value>
absl::Status Take(absl::StatusOr<Parsed> parsed, Value& value) {
  if (!parsed.ok()) return parsed.status();
  value = static_cast<Value>(*std::move(parsed));
  return absl::OkStatus();
}

std::string Switch(bool on) { return on ? "true" : "false"; }
std::string Number(uint64_t number) { return absl::StrCat(number); }
std::string Optional(const std::optional<uint32_t>& number) {
  return number.has_value() ? absl::StrCat(*number) : "";
}

absl::Status SetOptionalRows(Text text, std::optional<uint32_t>& rows) {
  rows.reset();
  if (text.empty()) return absl::OkStatus();
  uint32_t value = 0;
  absl::Status status = Take(ParseNumber(text, 0, kMaxRowsPerSequence), value);
  if (status.ok()) rows = value;
  return status;
}

absl::Status SetBackend(Text text, Config& config) {
  if (text != "auto" && text != "cpu" && text != "cuda") {
    return absl::InvalidArgumentError("expected auto, cpu or cuda");
  }
  config.backend = std::string(text);
  return absl::OkStatus();
}

absl::Status SetModel(Text text, Config& config) {
  const bool fits =
      !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               Text("._/-").find(c) != Text::npos;
      });
  if (!fits) return absl::InvalidArgumentError("expected 1 to 64 of letters, digits and ._/-");
  config.model = std::string(text);
  return absl::OkStatus();
}

absl::Status SetLevel(Text text, Config& config) {
  const std::optional<LogLevel> level = ParseLogLevel(text);
  if (!level.has_value()) return absl::InvalidArgumentError("expected debug, info, warn or error");
  config.log_level = *level;
  return absl::OkStatus();
}

constexpr uint64_t kHourMs = 3'600'000;

constexpr std::array kKeys = std::to_array<ConfigKey>({
    {"listen.uds", "path of a Unix socket, at most 107 bytes", "unix:/run/kvtriage/kvtriage.sock",
     "The main socket (gRPC).",
     [](Text text, Config& c) { return Take(ParseSocketPath(text), c.uds); },
     [](const Config& c) { return absl::StrCat("unix:", c.uds); }},
    {"listen.fd_uds", "path of a Unix socket in the directory of `listen.uds`",
     "/run/kvtriage/kvtriage-fd.sock (from `listen.uds`)",
     "The socket that passes file descriptors.",
     [](Text text, Config& c) { return Take(ParseSocketPath(text), c.fd_uds); },
     [](const Config& c) { return c.fd_uds; }},
    {"listen.metrics", "HOST:PORT, [IPv6]:PORT, or nothing for no page", "127.0.0.1:9401",
     "Address of /metrics. With port 0 the system picks one; the start line names it.",
     [](Text text, Config& c) {
       c.metrics = std::string(text);
       return absl::OkStatus();
     },
     [](const Config& c) { return c.metrics; }},
    {"listen.strict_dir", "true, false", "false",
     "Refuse to start when the directory of the sockets is writable by everyone without the sticky "
     "bit; else that is a warning.",
     [](Text text, Config& c) { return Take(ParseSwitch(text), c.strict_dir); },
     [](const Config& c) { return Switch(c.strict_dir); }, true},
    {"auth.allowed_uids", "user ids with commas between them", "our own and 0",
     "Who may connect to the sockets, by user.",
     [](Text text, Config& c) {
       c.uids_given = true;
       return Take(ParseIds(text), c.allowed_uids);
     },
     [](const Config& c) { return PrintIds(c.allowed_uids); }},
    {"auth.allowed_gids", "group ids with commas between them", "our own groups without 0",
     "Who may connect to the sockets, by group.",
     [](Text text, Config& c) {
       c.gids_given = true;
       return Take(ParseIds(text), c.allowed_gids);
     },
     [](const Config& c) { return PrintIds(c.allowed_gids); }},
    {"rpc.max_request_bytes", "4KiB to 1MiB", "256KiB", "Largest request.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 4096, kHardMaxRequestBytes), c.limits.max_request_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.max_request_bytes); }},
    {"rpc.max_connections", "1 to 1024", "128", "Connections on the main socket.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxConnections), c.limits.max_connections);
     },
     [](const Config& c) { return Number(c.limits.max_connections); }},
    {"rpc.reflection", "true, false", "false", "Serve gRPC reflection on the main socket.",
     [](Text text, Config& c) { return Take(ParseSwitch(text), c.reflection); },
     [](const Config& c) { return Switch(c.reflection); }, true},
    {"session.max", "1 to 10000", "256", "Attached sessions.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxSessions), c.limits.max_sessions);
     },
     [](const Config& c) { return Number(c.limits.max_sessions); }},
    {"session.max_bound", "1 to 1024", "64", "Sessions that may lend memory.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxBoundSessions), c.limits.max_bound_sessions);
     },
     [](const Config& c) { return Number(c.limits.max_bound_sessions); }},
    {"session.in_flight", "1 to 8", "4", "Jobs of one session at a time; also its ledger slots.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxInFlight), c.limits.max_in_flight);
     },
     [](const Config& c) { return Number(c.limits.max_in_flight); }},
    {"lease.keepalive_ms", "100 to 3600000", "5000",
     "Silence after which a worker is asked whether it is still there.",
     [](Text text, Config& c) { return Take(ParseNumber(text, 100, kHourMs), c.keepalive_ms); },
     [](const Config& c) { return Number(c.keepalive_ms); }},
    {"lease.keepalive_timeout_ms", "100 to 3600000", "5000",
     "Time to answer; then its connection and its sessions end.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 100, kHourMs), c.keepalive_timeout_ms);
     },
     [](const Config& c) { return Number(c.keepalive_timeout_ms); }},
    {"memory.max_regions", "1 to 4096", "512", "Regions of one session.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxRegions), c.limits.max_regions);
     },
     [](const Config& c) { return Number(c.limits.max_regions); }},
    {"memory.max_host_bytes", "1 or more bytes", "4096GiB",
     "Memory that one session may lend, the host's and devices' together.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 1, uint64_t{1} << 62), c.limits.max_host_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.max_host_bytes); }},
    {"ledger.bytes", "4KiB to 16MiB", "1MiB", "Size of a session's ledger.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 4096, kHardMaxLedgerBytes), c.limits.ledger_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.ledger_bytes); }},
    {"backend", "auto, cpu, cuda", "auto",
     "Which memory is served besides the host's, which always is: `auto` CUDA devices if there are "
     "some, `cpu` none, `cuda` devices or no start.",
     &SetBackend, [](const Config& c) { return c.backend; }},
    {"cuda.devices", "all, none, or UUIDs with commas between them", "all",
     "CUDA devices that are served. One that is named has to be there.",
     [](Text text, Config& c) { return Take(ParseDevices(text), c.cuda_devices); },
     [](const Config& c) { return c.cuda_devices; }},
    {"cuda.arena_bytes", "16MiB to 64GiB", "256MiB",
     "Working memory on each CUDA device, taken at the start and held for life.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, uint64_t{16} << 20, uint64_t{64} << 30), c.cuda_arena_bytes);
     },
     [](const Config& c) { return PrintBytes(c.cuda_arena_bytes); }},
    {"lane.cpu_threads", "0 to 1024", "0",
     "Threads of the CPU lane, its own included; 0 is one per core.",
     [](Text text, Config& c) { return Take(ParseNumber(text, 0, 1024), c.cpu_threads); },
     [](const Config& c) { return Number(c.cpu_threads); }},
    {"lane.stuck_ms", "100 to 3600000", "30000",
     "A job that runs longer ends the service with exit code 71.",
     [](Text text, Config& c) { return Take(ParseNumber(text, 100, kHourMs), c.stuck_ms); },
     [](const Config& c) { return Number(c.stuck_ms); }},
    {"lane.queue", "1 to 65536", "256", "Jobs that may wait for the lane.",
     [](Text text, Config& c) { return Take(ParseNumber(text, 1, 65'536), c.limits.lane_queue); },
     [](const Config& c) { return Number(c.limits.lane_queue); }},
    {"state.sequences", "1 to 65536", "4096", "Sequence records of one session.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxTrackedSequences), c.limits.max_tracked_sequences);
     },
     [](const Config& c) { return Number(c.limits.max_tracked_sequences); }},
    {"state.score_bytes", "0 or more bytes", "512MiB",
     "Memory for the running scores that Observe keeps, of all sessions together. A call that "
     "would "
     "outgrow it is refused with QUOTA_STATE.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 0, uint64_t{1} << 40), c.limits.max_score_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.max_score_bytes); }},
    {"state.groups", "1 to 1024", "64", "Groups that wait for the calls of their ranks.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kHardMaxGroups), c.limits.max_groups);
     },
     [](const Config& c) { return Number(c.limits.max_groups); }},
    {"state.group_bytes", "0 or more bytes", "512MiB", "Memory for scores that wait for ranks.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 0, uint64_t{1} << 40), c.limits.max_group_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.max_group_bytes); }},
    {"results.ttl_ms", "100 to 3600000", "60000", "How long answers are kept for a repeated call.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 100, kHourMs), c.limits.result_ttl_ms);
     },
     [](const Config& c) { return Number(c.limits.result_ttl_ms); }},
    {"results.bytes", "0 or more bytes", "256MiB", "Memory for kept answers of all sessions.",
     [](Text text, Config& c) {
       return Take(ParseBytes(text, 0, uint64_t{1} << 40), c.limits.max_stored_bytes);
     },
     [](const Config& c) { return PrintBytes(c.limits.max_stored_bytes); }},
    {"policy.default", "a policy name, or nothing", "nothing",
     "Policy of a request that names none; without it such a request is refused.",
     [](Text text, Config& c) {
       c.policy.name = std::string(text);  // FinishConfig knows all names
       return absl::OkStatus();
     },
     [](const Config& c) { return c.policy.name; }},
    {"policy.kept_ratio", "above 0, at most 1", "0.5",
     "Share of the rows that a named policy keeps when the request gives no amount.",
     [](Text text, Config& c) { return Take(ParseShare(text), c.policy.kept_ratio); },
     [](const Config& c) { return absl::StrFormat("%.17g", c.policy.kept_ratio); }},
    {"policy.sinks", "rows, or nothing", "nothing: as the policy says",
     "Protected first rows of our named policies.",
     [](Text text, Config& c) { return SetOptionalRows(text, c.policy.sinks); },
     [](const Config& c) { return Optional(c.policy.sinks); }},
    {"policy.recent", "rows, or nothing", "nothing: as the policy says",
     "Protected newest rows of our named policies.",
     [](Text text, Config& c) { return SetOptionalRows(text, c.policy.recent); },
     [](const Config& c) { return Optional(c.policy.recent); }},
    {"drain.notice_ms", "0 to 120000", "2000",
     "Time between telling workers of a drain and refusing new work.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 0, kMaxDeadlineMs), c.drain_notice_ms);
     },
     [](const Config& c) { return Number(c.drain_notice_ms); }},
    {"drain.deadline_ms", "1 to 120000", "20000", "Time that admitted jobs have to end in a drain.",
     [](Text text, Config& c) {
       return Take(ParseNumber(text, 1, kMaxDeadlineMs), c.drain_deadline_ms);
     },
     [](const Config& c) { return Number(c.drain_deadline_ms); }},
    {"metrics.model", "1 to 64 of letters, digits and ._/-", "default",
     "The label `model` of kvtriage_config_info.", &SetModel,
     [](const Config& c) { return c.model; }},
    {"metrics.per_layer", "true, false", "true", "The two summaries by layer group.",
     [](Text text, Config& c) { return Take(ParseSwitch(text), c.per_layer); },
     [](const Config& c) { return Switch(c.per_layer); }, true},
    {"log.level", "debug, info, warn, error", "info", "Least level that is logged.", &SetLevel,
     [](const Config& c) { return std::string(LogLevelName(c.log_level)); }},
});

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return kKeys; }

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const ConfigKey& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string EnvironmentName(std::string_view key) {
  std::string name = "KVTRIAGE_";
  for (const char c : key) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace kvtriage
