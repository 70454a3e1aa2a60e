#include "service/rpc/unary_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "service/observe/fault_point.h"
#include "service/rpc/deadline.h"
#include "service/rpc/error_status.h"
#include "service/rpc/scope_table.h"

namespace kvtriage {

class UnaryCall::Reactor final : public grpc::ServerUnaryReactor {
 public:
  Reactor(Engine& engine, std::shared_ptr<std::atomic<bool>> cancelled)
      : engine_(engine), cancelled_(std::move(cancelled)) {}

  void OnCancel() override {
    cancelled_->store(true, std::memory_order_release);
    engine_.NoteCancelled();
  }
  void OnDone() override { delete this; }

 private:
  Engine& engine_;
  const std::shared_ptr<std::atomic<bool>> cancelled_;
};

std::optional<std::string_view> OnlyMetadata(const grpc::CallbackServerContext& context,
                                             const char* key) {
  const auto [first, last] = context.client_metadata().equal_range(key);
  if (first == last || std::next(first) != last) return std::nullopt;
  return std::string_view(first->second.data(), first->second.size());
}

absl::StatusOr<PassedCall> PassChecks(RpcCore& core, const grpc::CallbackServerContext& context,
                                      RpcMethod method, absl::Time begin, absl::Duration usual) {
  PassedCall passed;
  absl::StatusOr<std::shared_ptr<Session>> session =
      PassGate(core.sessions, method, OnlyMetadata(context, kSessionMetadata));
  if (!session.ok()) return session.status();
  passed.session = *std::move(session);
  const auto wanted = context.deadline();
  const absl::StatusOr<absl::Time> deadline =
      DeadlineOf(begin,
                 wanted == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                        : absl::FromChrono(wanted),
                 usual);
  if (!deadline.ok()) return deadline.status();
  passed.deadline = *deadline;
  return passed;
}

std::shared_ptr<UnaryCall> UnaryCall::Begin(RpcCore& core, grpc::CallbackServerContext* context,
                                            RpcMethod method, absl::Duration usual) {
  std::shared_ptr<UnaryCall> call(new UnaryCall(core, context, method));
  absl::StatusOr<PassedCall> passed =
      PassChecks(core, *context, method, call->report_.begin, usual);
  if (passed.ok()) {
    call->session_ = std::move(passed->session);
    call->deadline_ = passed->deadline;
    if (call->session_ != nullptr) call->report_.session_id = call->session_->id();
  } else {
    call->Finish(passed.status());
  }
  return call;
}

UnaryCall::UnaryCall(RpcCore& core, grpc::CallbackServerContext* context, RpcMethod method)
    : core_(core), context_(context), cancelled_(std::make_shared<std::atomic<bool>>(false)) {
  reactor_ = new Reactor(core.engine, cancelled_);
  report_.method = method;
  report_.begin = absl::Now();
  report_.trace_id = TraceIdOf(OnlyMetadata(*context, "traceparent").value_or(""));
}

UnaryCall::~UnaryCall() {
  Finish(Error(ErrorReason::kInternal, "", "a call was dropped without an answer"));
}

Call UnaryCall::EngineCall(const BodyDigest& body, std::function<void(CallResult)> done) const {
  Call call;
  call.session = session_;
  call.body = body;
  call.deadline = deadline_;
  call.cancelled = cancelled_;
  call.done = std::move(done);
  return call;
}

void UnaryCall::Finish(const absl::Status& status) {
  if (finished_.exchange(true, std::memory_order_acq_rel)) return;
  const absl::Status own = OwnError(status);
  if (own.code() != status.code() || own.message() != status.message()) {
    core_.log.Write(
        LogLine(LogLevel::kError, "bug")
            .Add("text", std::string(status.message()))  // absl's own words, see OwnError
            .LimitAs("bug"));
  }
  // Before the answer: who has it finds it counted.
  const uint64_t log_id = ReportCall(core_, report_, own);
  context_->AddTrailingMetadata(kEpochMetadata, EpochBytes(core_.epoch));
  FaultPoint("rpc.before_finish");
  reactor_->Finish(ToGrpcStatus(own, core_.epoch, log_id));
  FaultPoint("rpc.after_finish");
}

}  // namespace kvtriage
