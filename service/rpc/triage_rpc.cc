// TriageService and BlendService: calls that become jobs of the lane.
#include <chrono>
#include <utility>

#include "kernels/core/error.h"
#include "kvtriage/v1/blend.grpc.pb.h"
#include "kvtriage/v1/triage.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/layers_rpc.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/blend_proto.h"
#include "service/validate/body_hash.h"
#include "service/validate/compress_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);

// Observes the time of its own life as a stage.
class StageTimer {
 public:
  StageTimer(Metrics& metrics, Stage stage) : metrics_(metrics), stage_(stage) {}
  ~StageTimer() {
    const auto took = std::chrono::steady_clock::now() - begin_;
    metrics_.OnStage(stage_, std::chrono::duration<double>(took).count());
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  Metrics& metrics_;
  const Stage stage_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Parses a request as the stage `validate`.
template <typename Parse>
auto Validated(Metrics& metrics, const Parse& parse) {
  const StageTimer timer(metrics, Stage::kValidate);
  return parse();
}

// What becomes of an engine's answer: `fill` makes the response of it.
template <typename Fill>
std::function<void(CallResult)> Reply(RpcCore& core, const std::shared_ptr<UnaryCall>& call,
                                      Fill fill) {
  return [&core, call, fill](const CallResult& result) {
    if (result.answer != nullptr) call->SetJob(result.answer->job_id);
    if (!result.status.ok()) return call->Finish(result.status);
    {
      const StageTimer timer(core.metrics, Stage::kReply);
      fill(result);
    }
    call->Finish(absl::OkStatus());
  };
}

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

class BlendService final : public v1::BlendService::CallbackService {
 public:
  explicit BlendService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* SelectRecompute(CallbackServerContext* context,
                                      const v1::SelectRecomputeRequest* request,
                                      v1::SelectRecomputeResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kSelectRecompute, kUsual);
    if (call->finished()) return call->reactor();
    absl::StatusOr<SelectRecomputeSpec> spec =
        Validated(core_.metrics, [&] { return ParseSelectRecompute(*request); });
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    auto done = Reply(core_, call, [this, response](const CallResult& result) {
      FillSelectRecomputeResponse(result, core_.epoch, *response);
    });
    core_.engine.SelectRecompute(call->EngineCall(BodyHash(*request), std::move(done)),
                                 *std::move(spec));
    return call->reactor();
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTriageService(RpcCore& core) {
  return std::make_unique<TriageService>(core);
}

std::unique_ptr<grpc::Service> MakeBlendService(RpcCore& core) {
  return std::make_unique<BlendService>(core);
}

}  // namespace kvtriage
