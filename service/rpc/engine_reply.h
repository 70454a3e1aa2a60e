// What calls that become jobs of the lane share: validation as a stage, and the way from the
// engine's answer to the response.
#ifndef KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_
#define KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_

#include <chrono>
#include <functional>
#include <memory>

#include "service/rpc/unary_call.h"

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

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_ENGINE_REPLY_H_
