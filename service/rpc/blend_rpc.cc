// BlendService: calls that become jobs of the lane.
#include <utility>

#include "kvtriage/v1/blend.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/engine_reply.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/body_hash.h"
#include "service/validate/fuse_proto.h"
#include "service/validate/recompute_proto.h"
#include "service/validate/rerotate_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);

class BlendService final : public v1::BlendService::CallbackService {
 public:
  explicit BlendService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* SelectRecompute(CallbackServerContext* context,
                                      const v1::SelectRecomputeRequest* request,
                                      v1::SelectRecomputeResponse* response) override {
    return Run(
        RpcMethod::kSelectRecompute, context, *request, *response,
        [&] { return ParseSelectRecompute(*request); }, &Engine::SelectRecompute,
        FillSelectRecomputeResponse);
  }

  ServerUnaryReactor* Rerotate(CallbackServerContext* context, const v1::RerotateRequest* request,
                               v1::RerotateResponse* response) override {
    return Run(
        RpcMethod::kRerotate, context, *request, *response,
        [&] { return ParseRerotate(*request, core_.limits); }, &Engine::Rerotate,
        FillRerotateResponse);
  }

  ServerUnaryReactor* Fuse(CallbackServerContext* context, const v1::FuseRequest* request,
                           v1::FuseResponse* response) override {
    return Run(
        RpcMethod::kFuse, context, *request, *response,
        [&] { return ParseFuse(*request, core_.limits); }, &Engine::Fuse, FillFuseResponse);
  }

  // Parses, hands the spec to the engine, and fills in the response when its answer comes.
  template <typename Request, typename Response, typename Parse, typename Spec>
  ServerUnaryReactor* Run(RpcMethod method, CallbackServerContext* context, const Request& request,
                          Response& response, const Parse& parse, void (Engine::*start)(Call, Spec),
                          void (*fill)(const CallResult&, uint64_t, Response&)) {
    auto call = UnaryCall::Begin(core_, context, method, kUsual);
    if (call->finished()) return call->reactor();
    absl::StatusOr<Spec> spec = Validated(core_.metrics, parse);
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    auto done = Reply(core_, call, [this, fill, &response](const CallResult& result) {
      fill(result, core_.epoch, response);
    });
    (core_.engine.*start)(call->EngineCall(BodyHash(request), std::move(done)), *std::move(spec));
    return call->reactor();
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeBlendService(RpcCore& core) {
  return std::make_unique<BlendService>(core);
}

}  // namespace kvtriage
