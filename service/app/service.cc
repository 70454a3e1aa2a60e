#include "service/app/service.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "kernels/core/status_macros.h"
#include "service/app/connection_count.h"
#include "service/app/cuda_support.h"
#include "service/app/descriptor_budget.h"
#include "service/app/exit_codes.h"
#include "service/app/loss_report.h"
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
constexpr uint64_t kLostMs = 40;  // for answers to leave, before the log is flushed

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

MetricsSettings MetricsSettingsOf(const Config& config, const CudaSupport& cuda) {
  MetricsSettings settings;
  settings.cuda_devices = cuda.names;
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

std::vector<DeviceLane> LanesOf(const CudaSupport& cuda, Metrics& metrics) {
  std::vector<DeviceLane> lanes = cuda.lanes;
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].observer = metrics.OfDevice(static_cast<DeviceIndex>(i + 1));
  }
  return lanes;
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// In the order in which they are made; they end in the opposite one.
struct Service::Parts {
  Parts(const Config& settings, CudaSupport cuda_support, std::shared_ptr<LossReport> loss_report)
      : config(settings),
        loss(std::move(loss_report)),
        log({.level = settings.log_level}),
        metrics(MetricsSettingsOf(settings, cuda_support)),
        reports(metrics, log),
        cuda(std::move(cuda_support)),
        engine(EngineLimitsOf(settings), MakeCpuBackend(static_cast<int>(settings.cpu_threads)),
               &metrics, LanesOf(cuda, metrics)),
        sessions(epoch, SessionLimitsOf(settings), doorkeeper, mapper, &reports, &metrics,
                 &cuda.devices),
        prober(&cuda.devices, [this] { loss->Tell(); }),
        core{epoch,
             sessions,
             engine,
             prober,
             cuda.devices,
             doorkeeper,
             metrics,
             log,
             settings.limits,
             settings.policy,
             FileName(settings.fd_uds)},
        connections(settings.limits.max_connections) {
    sessions.SetEngineEnd(
        [this](const std::shared_ptr<Session>& session, std::function<void()> finished) {
          engine.EndSession(session, std::move(finished));
        });
  }
  ~Parts() {
    loss->SetReceiver(nullptr);
    SettleMappers(mapper, cuda.devices);
  }

  const Config config;
  const uint64_t epoch = RandomNumber();
  const std::shared_ptr<LossReport> loss;
  Log log;
  Metrics metrics;
  std::unique_ptr<MetricsHttp> http;
  SessionReports reports;
  Mapper mapper;
  CudaSupport cuda;
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
  void OnStuck(const Watchdog::Watched& what);
  void OnLost();
  void TellSick(uint64_t ms_left, bool started);
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
  std::vector<Watchdog::Watched> watched{
      {"mapper", [this] { return mapper.BusyMs(); }, kMapperStuckMs},
      {"lane", [this] { return engine.RunningMs(); }, config.stuck_ms, "all"}};
  for (DeviceIndex i = 1; i <= cuda.devices.size(); ++i) {
    watched.push_back({"mapper", [this, i] { return cuda.devices.at(i).mapper().BusyMs(); },
                       kMapperStuckMs, cuda.names[i - 1]});
  }
  watchdog.emplace(doorkeeper, std::move(watched),
                   [this](const Watchdog::Watched& what) { OnStuck(what); });
}

// Nobody can be helped any more, but they can be told: then the supervisor gets its turn.
void Service::Parts::OnStuck(const Watchdog::Watched& what) {
  engine.MarkSick();
  log.Write(LogLine(LogLevel::kError, "stuck").Add("device", what.device).Add("part", what.name));
  TellSick(kSickMs, /*started=*/true);
  doorkeeper.After(kSickMs, [this] {
    log.Flush(kFlushMs);
    _exit(kExitStuck);
  });
}

// Nothing works any more in a process whose device has failed: another one takes its place.
void Service::Parts::OnLost() {
  if (core.sick.exchange(true)) return;
  engine.GiveUp();
  log.Write(LogLine(LogLevel::kError, "device_lost"));
  TellSick(kLostMs, /*started=*/false);
  doorkeeper.After(kLostMs, [this] {
    log.Flush(kFlushMs);
    _exit(kExitDeviceLost);
  });
}

void Service::Parts::TellSick(uint64_t ms_left, bool started) {
  core.sick = true;
  metrics.SetReady(false);
  server->SetHealth(/*alive=*/false, started, /*ready=*/false);
  sessions.NotifyAll({NoticeKind::kDeviceSick, static_cast<uint32_t>(ms_left), ""});
}

void Service::Parts::LogStart() {
  for (DeviceIndex i = 1; i <= cuda.devices.size(); ++i) {
    const DeviceFacts& facts = cuda.devices.at(i).facts();
    log.Write(LogLine(LogLevel::kInfo, "cuda_device")
                  .Add("device", cuda.names[i - 1])
                  .Add("uuid", facts.uuid)
                  .Add("memory_bytes", facts.memory_bytes)
                  .Add("driver", uint64_t{facts.driver_version}));
  }
  if (cuda.devices.size() == 0) {
    log.Write(LogLine(LogLevel::kInfo, "no_cuda_device")
                  .Add("text", std::string(cuda.devices.why_none().message())));
  }
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
  const auto loss = std::make_shared<LossReport>();
  KVTRIAGE_ASSIGN_OR_RETURN(CudaSupport cuda, OpenCuda(config, [loss] { loss->Tell(); }));
  std::unique_ptr<Service> service(new Service);
  service->parts_ = std::make_unique<Parts>(config, std::move(cuda), loss);
  Parts& parts = *service->parts_;
  KVTRIAGE_RETURN_IF_ERROR(parts.engine.WaitReady());
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
  loss->SetReceiver([&parts] { parts.doorkeeper.Post([&parts] { parts.OnLost(); }); });
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
