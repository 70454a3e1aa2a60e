// BlendService: calls that become jobs of the lane.
#include <utility>

#include "kvtriage/v1/blend.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/engine_reply.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/fuse_proto.h"
#include "service/validate/recompute_proto.h"
#include "service/validate/rerotate_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class BlendService final : public v1::BlendService::CallbackService {
 public:
  explicit BlendService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* SelectRecompute(CallbackServerContext* context,
                                      const v1::SelectRecomputeRequest* request,
                                      v1::SelectRecomputeResponse* response) override {
    return RunCall(
        core_, RpcMethod::kSelectRecompute, context, *request, *response,
        [&] { return ParseSelectRecompute(*request); }, &Engine::SelectRecompute,
        FillSelectRecomputeResponse);
  }

  ServerUnaryReactor* Rerotate(CallbackServerContext* context, const v1::RerotateRequest* request,
                               v1::RerotateResponse* response) override {
    return RunCall(
        core_, RpcMethod::kRerotate, context, *request, *response,
        [&] { return ParseRerotate(*request, core_.limits); }, &Engine::Rerotate,
        FillRerotateResponse);
  }

  ServerUnaryReactor* Fuse(CallbackServerContext* context, const v1::FuseRequest* request,
                           v1::FuseResponse* response) override {
    return RunCall(
        core_, RpcMethod::kFuse, context, *request, *response,
        [&] { return ParseFuse(*request, core_.limits); }, &Engine::Fuse, FillFuseResponse);
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeBlendService(RpcCore& core) {
  return std::make_unique<BlendService>(core);
}

}  // namespace kvtriage
