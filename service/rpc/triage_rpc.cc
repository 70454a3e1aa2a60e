// TriageService: calls that become jobs of the lane.
#include <utility>

#include "kvtriage/v1/triage.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/engine_reply.h"
#include "service/rpc/layers_rpc.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/compress_proto.h"
#include "service/validate/observe_proto.h"
#include "service/validate/rewind_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);

class TriageService final : public v1::TriageService::CallbackService {
 public:
  explicit TriageService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* Compress(CallbackServerContext* context, const v1::CompressRequest* request,
                               v1::CompressResponse* response) override {
    return RunCall(
        core_, RpcMethod::kCompress, context, *request, *response,
        [&] { return ParseCompress(*request, core_.limits, core_.policy); }, &Engine::Compress,
        FillCompressResponse);
  }

  grpc::ServerBidiReactor<v1::CompressLayersRequest, v1::CompressLayersResponse>* CompressLayers(
      CallbackServerContext* context) override {
    return StartLayersStream(core_, context);
  }

  ServerUnaryReactor* Observe(CallbackServerContext* context, const v1::ObserveRequest* request,
                              v1::ObserveResponse* response) override {
    return RunCall(
        core_, RpcMethod::kObserve, context, *request, *response,
        [&] { return ParseObserve(*request, core_.limits, core_.policy); }, &Engine::Observe,
        FillObserveResponse);
  }

  ServerUnaryReactor* Rewind(CallbackServerContext* context, const v1::RewindRequest* request,
                             v1::RewindResponse* response) override {
    return RunCall(
        core_, RpcMethod::kRewind, context, *request, *response,
        [&] { return ParseRewind(*request); }, &Engine::Rewind, FillRewindResponse);
  }

  ServerUnaryReactor* ReleaseSequence(CallbackServerContext* context,
                                      const v1::ReleaseSequenceRequest* request,
                                      v1::ReleaseSequenceResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kReleaseSequence, kUsual);
    if (call->finished()) return call->reactor();
    std::vector<uint64_t> ids(request->sequence_ids().begin(), request->sequence_ids().end());
    core_.engine.ReleaseSequences(call->session(), std::move(ids),
                                  [this, call, response](Engine::Released released) {
                                    response->set_server_epoch(core_.epoch);
                                    response->set_released(released.released);
                                    response->set_already_gone(released.already_gone);
                                    call->Finish(absl::OkStatus());
                                  });
    return call->reactor();
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTriageService(RpcCore& core) {
  return std::make_unique<TriageService>(core);
}

}  // namespace kvtriage
