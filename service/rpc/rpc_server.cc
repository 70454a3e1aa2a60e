#include "service/rpc/rpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "service/rpc/scope_table.h"
#include "service/rpc/services.h"

namespace kvtriage {
namespace {

constexpr int kMaxStreamsPerConnection = 128;
constexpr size_t kTransportBytes = size_t{256} << 20;
constexpr int kMaxThreads = 16;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kMinPingGapMs = 5'000;

// Linking gRPC's reflection makes every server serve it; this takes it out again.
class NoReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

void SetLimits(const RpcCore& core, const RpcServer::Settings& settings,
               grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("kvtriage");
  quota.Resize(kTransportBytes).SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(core.limits.max_request_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxResponseBytes));
  // A small compressed message may inflate to anything: identity only, both ways.
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Keepalive is what notices a worker that has stopped: its streams are leases.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(settings.keepalive_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(settings.keepalive_timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingGapMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
}

// "kvtriage.v1.TriageService" of "kvtriage.v1.TriageService.Compress".
std::string ServiceOf(std::string_view method) {
  return std::string(method.substr(0, method.rfind('.')));
}

}  // namespace

struct RpcServer::State {
  std::vector<std::unique_ptr<grpc::Service>> services;  // outlive the server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

RpcServer::RpcServer() : state_(std::make_unique<State>()) {}

RpcServer::~RpcServer() {
  if (state_->server != nullptr) Shutdown(0);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(RpcCore& core,
                                                            const Settings& settings) {
  grpc::EnableDefaultHealthCheckService(true);  // a global switch, read when a server is built
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // does nothing when linking did it
  std::unique_ptr<RpcServer> rpc(new RpcServer);
  State& state = *rpc->state_;
  grpc::ServerBuilder builder;
  SetLimits(core, settings, builder);
  if (!settings.reflection) builder.SetOption(std::make_unique<NoReflection>());
  state.acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());  // a Unix socket: the peer was checked when it connected
  state.services.push_back(MakeSessionService(core));
  state.services.push_back(MakeMemoryService(core));
  state.services.push_back(MakeTriageService(core));
  state.services.push_back(MakeBlendService(core));
  state.services.push_back(MakeAdminService(core));
  for (const auto& service : state.services) builder.RegisterService(service.get());
  state.server = builder.BuildAndStart();
  if (state.server == nullptr) return absl::UnavailableError("cannot start the gRPC server");
  rpc->SetHealth(/*alive=*/true, /*started=*/false, /*ready=*/false);
  return rpc;
}

void RpcServer::TakeConnection(UniqueFd fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd.release();
  state_->acceptor->HandleNewConnection(&connection);
}

void RpcServer::SetHealth(bool alive, bool started, bool ready) {
  grpc::HealthCheckServiceInterface* health = state_->server->GetHealthCheckService();
  health->SetServingStatus("", alive);
  health->SetServingStatus("kvtriage.startup", started);
  health->SetServingStatus("kvtriage.ready", ready);
  for (const MethodRow& row : ScopeTable()) {
    health->SetServingStatus(ServiceOf(row.full_name), ready);
  }
}

void RpcServer::Shutdown(uint64_t timeout_ms) {
  state_->server->Shutdown(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(timeout_ms));
}

}  // namespace kvtriage
