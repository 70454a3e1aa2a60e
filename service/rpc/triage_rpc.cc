// TriageService: calls that become jobs of the lane.
#include <utility>

#include "kvtriage/v1/triage.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/engine_reply.h"
#include "service/rpc/layers_rpc.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/body_hash.h"
#include "service/validate/compress_proto.h"

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
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kCompress, kUsual);
    if (call->finished()) return call->reactor();
    absl::StatusOr<CompressSpec> spec = Validated(
        core_.metrics, [&] { return ParseCompress(*request, core_.limits, core_.policy); });
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    auto done = Reply(core_, call, [this, response](const CallResult& result) {
      FillCompressResponse(result, core_.epoch, *response);
    });
    core_.engine.Compress(call->EngineCall(BodyHash(*request), std::move(done)), *std::move(spec));
    return call->reactor();
  }

  grpc::ServerBidiReactor<v1::CompressLayersRequest, v1::CompressLayersResponse>* CompressLayers(
      CallbackServerContext* context) override {
    return StartLayersStream(core_, context);
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
