// Answers that are decided under the engine's lock and given after it.
#ifndef KVTRIAGE_SERVICE_ENGINE_CALLBACKS_H_
#define KVTRIAGE_SERVICE_ENGINE_CALLBACKS_H_

#include <functional>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "service/engine/engine.h"

namespace kvtriage {

inline CallResult Refusal(absl::Status status) {
  CallResult result;
  result.status = std::move(status);
  return result;
}

inline absl::Status SessionEnded() {
  return Error(ErrorReason::kSessionEnded, "", "the session has ended");
}

class Callbacks {
 public:
  void Add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  void Answer(std::function<void(CallResult)> done, CallResult result) {
    calls_.push_back([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }
  void Refuse(std::function<void(CallResult)> done, absl::Status status) {
    Answer(std::move(done), Refusal(std::move(status)));
  }
  // For those who waited for another call with the same key.
  void AnswerAll(std::vector<std::function<void(CallResult)>> waiters, CallResult result) {
    result.replayed = result.status.ok();
    for (auto& done : waiters) Answer(std::move(done), result);
  }

  // Once, without the lock.
  void Run() {
    for (const std::function<void()>& call : calls_) call();
  }

 private:
  std::vector<std::function<void()>> calls_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_CALLBACKS_H_
