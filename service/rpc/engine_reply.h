// What calls that become jobs of the lane share: validation as a stage, and the way from the
// engine's answer to the response.
#ifndef KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_
#define KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "service/rpc/unary_call.h"
#include "service/validate/body_hash.h"

namespace kvtriage {

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

// A whole call: parses the request, hands the spec to the engine, and fills in the response when
// its answer comes.
template <typename Request, typename Response, typename Parse, typename Spec>
grpc::ServerUnaryReactor* RunCall(RpcCore& core, RpcMethod method,
                                  grpc::CallbackServerContext* context, const Request& request,
                                  Response& response, const Parse& parse,
                                  void (Engine::*start)(Call, Spec),
                                  void (*fill)(const CallResult&, uint64_t, Response&)) {
  constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);
  auto call = UnaryCall::Begin(core, context, method, kUsual);
  if (call->finished()) return call->reactor();
  absl::StatusOr<Spec> spec = Validated(core.metrics, parse);
  if (!spec.ok()) {
    call->Finish(spec.status());
    return call->reactor();
  }
  auto done = Reply(core, call, [&core, fill, &response](const CallResult& result) {
    fill(result, core.epoch, response);
  });
  (core.engine.*start)(call->EngineCall(BodyHash(request), std::move(done)), *std::move(spec));
  return call->reactor();
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_
