#include "service/app/service.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "kernels/core/status_macros.h"
#include "service/app/connection_count.h"
#include "service/app/descriptor_budget.h"
#include "service/app/exit_codes.h"
#include "service/app/process_signals.h"
#include "service/app/session_reports.h"
#include "service/app/watchdog.h"
#include "service/memory/mapper.h"
#include "service/memory/random_bytes.h"
#include "service/observe/fault_point.h"
#include "service/observe/metrics_http.h"
#include "service/rpc/rpc_server.h"
#include "service/session/fd_socket.h"
#include "service/session/peer_acceptor.h"
#include "service/session/unix_listener.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMapperStuckMs = 5'000;
constexpr uint64_t kSickMs = 1'000;  // for clients to see it and for the log to be read
constexpr uint64_t kFlushMs = 50;

// How long the steps of a shutdown may take before the next one comes anyway.
struct ShutdownTimes {
  uint64_t sessions_ms;  // to end the sessions
  uint64_t calls_ms;     // for answers to arrive, before open calls are cancelled
  uint64_t hang_ms;      // for everything, after the drain's deadline: then the process just ends
};
constexpr ShutdownTimes kShutdown = {1'000, 2'000, 2'000};
constexpr ShutdownTimes kHurriedShutdown = {300, 500, 2'000};
constexpr uint64_t kDrainLookMs = 20;

struct Listeners {
  UnixListener main, fd;
};

// Before any thread starts: binding changes the umask for a moment.
absl::StatusOr<Listeners> Bind(const Config& config) {
  UnixListenerOptions options;
  options.strict_dir = config.strict_dir;
  options.path = config.uds;
  KVTRIAGE_ASSIGN_OR_RETURN(UnixListener main, UnixListener::Bind(options));
  options.path = config.fd_uds;
  options.type = SOCK_SEQPACKET;
  KVTRIAGE_ASSIGN_OR_RETURN(UnixListener fd, UnixListener::Bind(options));
  return Listeners{std::move(main), std::move(fd)};
}

MetricsSettings MetricsSettingsOf(const Config& config) {
  MetricsSettings settings;
  settings.default_policy = config.policy.name;
  settings.backend = config.backend;
  settings.model = config.model;
  settings.per_layer = config.per_layer;
  settings.queue_limit = config.limits.lane_queue;
  settings.score_limit = config.limits.max_score_bytes;
  return settings;
}

EngineLimits EngineLimitsOf(const Config& config) {
  EngineLimits limits;
  limits.jobs_per_session = config.limits.max_in_flight;
  limits.lane_queue = config.limits.lane_queue;
  limits.lane_stuck_ms = config.stuck_ms;
  limits.sequences_per_session = config.limits.max_tracked_sequences;
  limits.score_bytes = config.limits.max_score_bytes;
  limits.results_per_session = kMaxStoredAnswers;
  limits.results_ttl_ms = config.limits.result_ttl_ms;
  limits.results_session_bytes = kMaxStoredBytesPerSession;
  limits.results_bytes = config.limits.max_stored_bytes;
  limits.groups = config.limits.max_groups;
  limits.group_bytes = config.limits.max_group_bytes;
  limits.remembered_keys = kMaxRememberedKeys;
  limits.max_response_bytes = kMaxResponseBytes;
  return limits;
}

SessionLimits SessionLimitsOf(const Config& config) {
  SessionLimits limits;
  limits.max_attached = config.limits.max_sessions;
  limits.max_bound = config.limits.max_bound_sessions;
  limits.ledger_bytes = config.limits.ledger_bytes;
  limits.ledger_slots = config.limits.max_in_flight;
  limits.memory.max_regions = config.limits.max_regions;
  limits.memory.max_caches = config.limits.max_caches;
  limits.memory.max_host_bytes = config.limits.max_host_bytes;
  return limits;
}

PeerRule PeerRuleOf(const Config& config) {
  PeerRule rule;
  rule.uids.assign(config.allowed_uids.begin(), config.allowed_uids.end());
  rule.gids.assign(config.allowed_gids.begin(), config.allowed_gids.end());
  return rule;
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// In the order in which they are made; they end in the opposite one.
struct Service::Parts {
  explicit Parts(const Config& settings)
      : config(settings),
        log({.level = settings.log_level}),
        metrics(MetricsSettingsOf(settings)),
        reports(metrics, log),
        engine(EngineLimitsOf(settings), MakeCpuBackend(static_cast<int>(settings.cpu_threads)),
               &metrics),
        sessions(epoch, SessionLimitsOf(settings), doorkeeper, mapper, &reports, &metrics),
        core{epoch,   sessions, engine,          prober,          doorkeeper,
             metrics, log,      settings.limits, settings.policy, FileName(settings.fd_uds)},
        connections(settings.limits.max_connections) {
    sessions.SetEngineEnd(
        [this](const std::shared_ptr<Session>& session, std::function<void()> finished) {
          engine.EndSession(session, std::move(finished));
        });
  }

  const Config config;
  const uint64_t epoch = RandomNumber();
  Log log;
  Metrics metrics;
  std::unique_ptr<MetricsHttp> http;
  SessionReports reports;
  Mapper mapper;
  Doorkeeper doorkeeper;
  Engine engine;
  SessionTable sessions;
  MemoryProber prober;
  RpcCore core;
  std::unique_ptr<RpcServer> server;
  ConnectionCount connections;  // doorkeeper's thread
  std::optional<FdSocket> fd_socket;
  std::optional<PeerAcceptor> main_socket;
  std::optional<Watchdog> watchdog;

  void ServeFdSocket(UnixListener listener);
  void ServeMainSocket(UnixListener listener);
  void StartWatchdog();
  void OnStuck(std::string_view what);
  void LogStart();
  void Drain();
  void ShutDown(const ShutdownTimes& times, absl::Duration left);
};

void Service::Parts::ServeFdSocket(UnixListener listener) {
  fd_socket.emplace(std::move(listener), epoch, PeerRuleOf(config), FdSocketLimits{}, doorkeeper,
                    sessions, mapper, [this](FdSocketEvent event, const PeerProcess& peer) {
                      const std::string_view name = FdSocketEventName(event);
                      log.Write(LogLine(LogLevel::kWarn, name)
                                    .Add("socket", "fd")
                                    .Add("uid", uint64_t{peer.uid})
                                    .LimitAs(name));
                    });
}

void Service::Parts::ServeMainSocket(UnixListener listener) {
  const auto turned_away = [this](std::string_view event, const PeerProcess& peer) {
    log.Write(LogLine(LogLevel::kWarn, event)
                  .Add("socket", "main")
                  .Add("uid", uint64_t{peer.uid})
                  .LimitAs(event));
  };
  PeerAcceptor::Callbacks callbacks;
  callbacks.accepted = [this, turned_away](UniqueFd fd, const PeerProcess& peer) {
    if (!connections.Admit(fd.get())) return turned_away("connection_limit", peer);
    server->TakeConnection(std::move(fd));
  };
  callbacks.refused = [turned_away](const PeerProcess& peer) { turned_away("peer_refused", peer); };
  main_socket.emplace(std::move(listener), PeerRuleOf(config), doorkeeper, std::move(callbacks));
}

void Service::Parts::StartWatchdog() {
  watchdog.emplace(doorkeeper,
                   std::vector<Watchdog::Watched>{
                       {"mapper", [this] { return mapper.BusyMs(); }, kMapperStuckMs},
                       {"lane", [this] { return engine.RunningMs(); }, config.stuck_ms}},
                   [this](const Watchdog::Watched& watched) { OnStuck(watched.name); });
}

// Nobody can be helped any more, but they can be told: then the supervisor gets its turn.
void Service::Parts::OnStuck(std::string_view what) {
  core.sick = true;
  engine.MarkSick();
  metrics.SetReady(false);
  server->SetHealth(/*alive=*/false, /*started=*/true, /*ready=*/false);
  log.Write(LogLine(LogLevel::kError, "stuck").Add("device", "cpu").Add("part", what));
  sessions.NotifyAll({NoticeKind::kDeviceSick, static_cast<uint32_t>(kSickMs), ""});
  doorkeeper.After(kSickMs, [this] {
    log.Flush(kFlushMs);
    _exit(kExitStuck);
  });
}

void Service::Parts::LogStart() {
  log.Write(LogLine(LogLevel::kInfo, "started")
                .Add("version", KVTRIAGE_VERSION)
                .AddHex("epoch", epoch)
                .Add("pid", static_cast<uint64_t>(getpid()))
                .Add("main", "unix:" + config.uds)
                .Add("fd", config.fd_uds)
                .Add("metrics", http != nullptr ? http->address() : ""));
}

void Service::Parts::Drain() {
  core.draining = true;
  metrics.SetDraining();
  metrics.SetReady(false);
  server->SetHealth(/*alive=*/true, /*started=*/true, /*ready=*/false);
  FaultPoint("drain.after_not_serving");
  log.Write(LogLine(LogLevel::kInfo, "draining").Add("jobs", uint64_t{engine.jobs_left()}));
  sessions.NotifyAll(
      {NoticeKind::kDraining, config.drain_notice_ms + config.drain_deadline_ms, "drain"});
  bool hurried = WaitForStop(config.drain_notice_ms);
  sessions.StopAttaching();
  engine.StopAdmitting();
  const absl::Time deadline = absl::Now() + absl::Milliseconds(config.drain_deadline_ms);
  while (!hurried && absl::Now() < deadline && !engine.WaitIdle(kDrainLookMs)) {
    hurried = WaitForStop(0);
  }
  if (hurried) return ShutDown(kHurriedShutdown, absl::ZeroDuration());
  ShutDown(kShutdown, std::max(absl::ZeroDuration(), deadline - absl::Now()));
}

// `left`: of the drain's deadline.
void Service::Parts::ShutDown(const ShutdownTimes& times, absl::Duration left) {
  ExitAfter(times.hang_ms + static_cast<uint64_t>(absl::ToInt64Milliseconds(left)));
  sessions.EndAll(EndCause::kDrain);
  sessions.WaitAllClosed(times.sessions_ms);
  FaultPoint("drain.before_shutdown");
  server->Shutdown(times.calls_ms);
  watchdog.reset();
  main_socket.reset();
  fd_socket.reset();
  FaultPoint("drain.before_unmap");
  log.Write(LogLine(LogLevel::kInfo, "stopped").Add("jobs", uint64_t{engine.jobs_left()}));
}

Service::Service() = default;
Service::~Service() = default;

absl::StatusOr<std::unique_ptr<Service>> Service::Start(const Config& config) {
  KVTRIAGE_RETURN_IF_ERROR(CheckDescriptorBudget(config.limits));
  KVTRIAGE_ASSIGN_OR_RETURN(Listeners listeners, Bind(config));
  std::unique_ptr<Service> service(new Service);
  service->parts_ = std::make_unique<Parts>(config);
  Parts& parts = *service->parts_;
  if (!config.metrics.empty()) {
    KVTRIAGE_ASSIGN_OR_RETURN(
        parts.http, MetricsHttp::Start(config.metrics, [&parts] { return parts.metrics.Page(); }));
  }
  RpcServer::Settings settings;
  settings.keepalive_ms = config.keepalive_ms;
  settings.keepalive_timeout_ms = config.keepalive_timeout_ms;
  settings.reflection = config.reflection;
  KVTRIAGE_ASSIGN_OR_RETURN(parts.server, RpcServer::Start(parts.core, settings));
  if (listeners.main.directory_is_open()) {
    parts.log.Write(LogLine(LogLevel::kWarn, "open_directory")
                        .Add("text",
                             "everybody may replace the sockets: their directory is "
                             "world-writable without the sticky bit"));
  }
  parts.ServeFdSocket(std::move(listeners.fd));
  parts.ServeMainSocket(std::move(listeners.main));
  parts.StartWatchdog();
  parts.metrics.SetReady(true);
  parts.server->SetHealth(/*alive=*/true, /*started=*/true, /*ready=*/true);
  parts.LogStart();
  return service;
}

int Service::RunUntilStopped() {
  WaitForStop();
  parts_->Drain();
  return kExitDrained;
}

}  // namespace kvtriage
