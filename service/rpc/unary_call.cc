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
  explicit Reactor(std::shared_ptr<std::atomic<bool>> cancelled)
      : cancelled_(std::move(cancelled)) {}

  void OnCancel() override { cancelled_->store(true, std::memory_order_release); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<std::atomic<bool>> cancelled_;
};

std::optional<std::string_view> OnlyMetadata(const grpc::CallbackServerContext& context,
                                             const char* key) {
  const auto [first, last] = context.client_metadata().equal_range(key);
  if (first == last || std::next(first) != last) return std::nullopt;
  return std::string_view(first->second.data(), first->second.size());
}

std::shared_ptr<UnaryCall> UnaryCall::Begin(RpcCore& core, grpc::CallbackServerContext* context,
                                            RpcMethod method, absl::Duration usual) {
  std::shared_ptr<UnaryCall> call(new UnaryCall(core, context, method));
  if (absl::Status status = call->PassChecks(method, usual); !status.ok()) call->Finish(status);
  return call;
}

UnaryCall::UnaryCall(RpcCore& core, grpc::CallbackServerContext* context, RpcMethod method)
    : core_(core), context_(context), cancelled_(std::make_shared<std::atomic<bool>>(false)) {
  reactor_ = new Reactor(cancelled_);
  report_.method = method;
  report_.begin = absl::Now();
  report_.trace_id = TraceIdOf(OnlyMetadata(*context, "traceparent").value_or(""));
}

UnaryCall::~UnaryCall() {
  Finish(Error(ErrorReason::kInternal, "", "a call was dropped without an answer"));
}

absl::Status UnaryCall::PassChecks(RpcMethod method, absl::Duration usual) {
  absl::StatusOr<std::shared_ptr<Session>> session =
      PassGate(core_.sessions, method, OnlyMetadata(*context_, kSessionMetadata));
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  if (session_ != nullptr) report_.session_id = session_->id();
  const auto wanted = context_->deadline();
  const absl::StatusOr<absl::Time> deadline =
      DeadlineOf(report_.begin,
                 wanted == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                        : absl::FromChrono(wanted),
                 usual);
  if (!deadline.ok()) return deadline.status();
  deadline_ = *deadline;
  return absl::OkStatus();
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
