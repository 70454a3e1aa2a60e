#include "client/cpp/transport.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <utility>

#include "client/cpp/grpc_channel.h"
#include "client/cpp/local_error.h"
#include "kvtriage/v1/admin.grpc.pb.h"
#include "kvtriage/v1/blend.grpc.pb.h"
#include "kvtriage/v1/memory.grpc.pb.h"
#include "kvtriage/v1/session.grpc.pb.h"
#include "kvtriage/v1/triage.grpc.pb.h"

namespace kvtriage::client {
namespace {

constexpr int kKeepaliveMs = 10000,
              kKeepaliveTimeoutMs = 5000;  // the service allows pings 5 s apart
constexpr int kMaxAnswerBytes = 4 << 20;
constexpr char kTokenKey[] = "kvtriage-session-bin";

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // we repeat ourselves, with the same key
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  return args;
}

template <typename Stub, typename In, typename Out>
absl::Status Run(grpc::Status (Stub::*method)(grpc::ClientContext*, const In&, Out*), Stub&& stub,
                 const std::string& token, const In& in, Out* out, absl::Time deadline) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  if (!token.empty()) context.AddMetadata(kTokenKey, token);
  return FromGrpc((stub.*method)(&context, in, out));
}

class GrpcLayersWire final : public LayersWire {
 public:
  GrpcLayersWire(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
                 absl::Time deadline)
      : stub_(channel) {
    context_.set_deadline(absl::ToChronoTime(deadline));
    if (!token.empty()) context_.AddMetadata(kTokenKey, token);
    stream_ = stub_.CompressLayers(&context_);
  }

  bool Write(const v1::CompressLayersRequest& message) override { return stream_->Write(message); }
  bool Read(v1::CompressLayersResponse* message) override { return stream_->Read(message); }
  void HalfClose() override { stream_->WritesDone(); }
  void Cancel() override { context_.TryCancel(); }
  absl::Status Finish() override { return FromGrpc(stream_->Finish()); }

 private:
  v1::TriageService::Stub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::CompressLayersRequest, v1::CompressLayersResponse>>
      stream_;
};

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (const auto details = ParseRpcDetails(status.error_details())) {
    return StatusWithDetails(code, status.error_message(), *details);
  }
  return absl::Status(code, status.error_message());
}

Transport::Transport(const std::string& socket_path) : channel_(std::make_unique<GrpcChannel>()) {
  channel_->channel = grpc::CreateCustomChannel("unix:" + socket_path,
                                                grpc::InsecureChannelCredentials(), Arguments());
}

Transport::~Transport() = default;

absl::Status Transport::Call(const v1::GetServerInfoRequest& in, v1::GetServerInfoResponse* out,
                             absl::Time deadline) {
  using Stub = v1::SessionService::Stub;
  return Run(&Stub::GetServerInfo, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::RegisterRegionsRequest& in, v1::RegisterRegionsResponse* out,
                             absl::Time deadline) {
  using Stub = v1::MemoryService::Stub;
  return Run(&Stub::RegisterRegions, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::UnregisterRegionsRequest& in,
                             v1::UnregisterRegionsResponse* out, absl::Time deadline) {
  using Stub = v1::MemoryService::Stub;
  return Run(&Stub::UnregisterRegions, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::ListRegionsRequest& in, v1::ListRegionsResponse* out,
                             absl::Time deadline) {
  using Stub = v1::MemoryService::Stub;
  return Run(&Stub::ListRegions, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::CompressRequest& in, v1::CompressResponse* out,
                             absl::Time deadline) {
  using Stub = v1::TriageService::Stub;
  return Run(&Stub::Compress, Stub(channel_->channel), token_, in, out, deadline);
}

std::unique_ptr<LayersWire> Transport::OpenLayers(absl::Time deadline) {
  return std::make_unique<GrpcLayersWire>(channel_->channel, token_, deadline);
}

absl::Status Transport::Call(const v1::ObserveRequest& in, v1::ObserveResponse* out,
                             absl::Time deadline) {
  using Stub = v1::TriageService::Stub;
  return Run(&Stub::Observe, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::RewindRequest& in, v1::RewindResponse* out,
                             absl::Time deadline) {
  using Stub = v1::TriageService::Stub;
  return Run(&Stub::Rewind, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::ReleaseSequenceRequest& in, v1::ReleaseSequenceResponse* out,
                             absl::Time deadline) {
  using Stub = v1::TriageService::Stub;
  return Run(&Stub::ReleaseSequence, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::SelectRecomputeRequest& in, v1::SelectRecomputeResponse* out,
                             absl::Time deadline) {
  using Stub = v1::BlendService::Stub;
  return Run(&Stub::SelectRecompute, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::RerotateRequest& in, v1::RerotateResponse* out,
                             absl::Time deadline) {
  using Stub = v1::BlendService::Stub;
  return Run(&Stub::Rerotate, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::FuseRequest& in, v1::FuseResponse* out,
                             absl::Time deadline) {
  using Stub = v1::BlendService::Stub;
  return Run(&Stub::Fuse, Stub(channel_->channel), token_, in, out, deadline);
}

absl::Status Transport::Call(const v1::ProbeMemoryRequest& in, v1::ProbeMemoryResponse* out,
                             absl::Time deadline) {
  using Stub = v1::AdminService::Stub;
  return Run(&Stub::ProbeMemory, Stub(channel_->channel), token_, in, out, deadline);
}

}  // namespace kvtriage::client
