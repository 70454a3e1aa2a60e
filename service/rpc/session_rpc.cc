// SessionService: Attach, whose stream is the lease, and GetServerInfo.
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/mutex.h"
#include "kvtriage/v1/session.grpc.pb.h"
#include "service/observe/fault_point.h"
#include "service/rpc/error_status.h"
#include "service/rpc/server_info.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/session_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;

v1::Notice::Kind KindOf(NoticeKind kind) {
  switch (kind) {
    case NoticeKind::kDraining:
      return v1::Notice::KIND_DRAINING;
    case NoticeKind::kDeviceSick:
      return v1::Notice::KIND_DEVICE_SICK;
    case NoticeKind::kSessionEnding:
      return v1::Notice::KIND_SESSION_ENDING;
  }
  return v1::Notice::KIND_UNSPECIFIED;
}

absl::Status StatusOf(EndCause cause) {
  switch (cause) {
    case EndCause::kClient:
      return absl::OkStatus();
    case EndCause::kDrain:
      return Error(ErrorReason::kDraining, "", "the service is draining");
    case EndCause::kProtocol:
      return Error(ErrorReason::kFieldInvalid, "message", "only Goodbye may follow Hello");
    case EndCause::kLease:
    case EndCause::kPeerDied:
      break;
  }
  return Error(ErrorReason::kSessionEnded, "", "the session has ended");
}

// One Attach. gRPC and the session table hold it; it lives until gRPC says that the stream is done.
// Reads, writes and the finish each have at most one operation under way; the mutex says which.
class AttachStream final : public grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>,
                           public std::enable_shared_from_this<AttachStream> {
 public:
  AttachStream(RpcCore& core, CallbackServerContext* context) : core_(core), context_(context) {
    report_.method = RpcMethod::kAttach;
    report_.begin = absl::Now();
  }

  // Called once, by the handler.
  void Start() {
    self_ = shared_from_this();
    context_->AddTrailingMetadata(kEpochMetadata, EpochBytes(core_.epoch));
    hello_timer_ = core_.doorkeeper.After(kHandshakeMs, [weak = weak_from_this()] {
      if (const auto stream = weak.lock()) stream->OnHelloLate();
    });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    const std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return ok ? OnHello() : Refuse(NoHello());
    if (!ok) return EndSession(session, EndCause::kLease);
    EndSession(session, request_.has_goodbye() ? EndCause::kClient : EndCause::kProtocol);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) outgoing_.clear();  // the stream is broken: only the finish is left
    }
    Proceed();
  }

  void OnCancel() override {
    if (const std::shared_ptr<Session> session = CurrentSession()) {
      EndSession(session, EndCause::kLease);
    }
    FinishWith(absl::CancelledError());
  }

  void OnDone() override {
    core_.doorkeeper.Cancel(hello_timer_);
    const std::shared_ptr<AttachStream> last = std::move(self_);
  }

 private:
  static absl::Status NoHello() {
    return Error(ErrorReason::kFieldInvalid, "hello", "the first message must be Hello");
  }

  std::shared_ptr<Session> CurrentSession() {
    MutexLock lock(&mutex_);
    return session_;
  }

  void OnHello() {
    const absl::StatusOr<HelloSpec> hello = ParseHello(request_);
    if (!hello.ok()) return Refuse(hello.status());
    {
      // A stream that was given up while its Hello came in gets no session.
      MutexLock lock(&mutex_);
      if (final_status_.has_value()) return;
    }
    FaultPoint("session.before_welcome");
    const std::weak_ptr<AttachStream> weak = weak_from_this();
    absl::StatusOr<std::shared_ptr<Session>> session = core_.sessions.Attach(
        ClientHello{hello->client, hello->rank, hello->world_size},
        [weak](const SessionNotice& notice) {
          if (const auto stream = weak.lock()) stream->Notify(notice);
        },
        [weak](EndCause cause) {
          if (const auto stream = weak.lock()) stream->FinishWith(StatusOf(cause));
        });
    if (!session.ok()) return Refuse(session.status());
    v1::AttachResponse response;
    FillWelcome(core_, **session, hello->api_revision, *response.mutable_welcome());
    bool given_up = false;
    {
      MutexLock lock(&mutex_);
      session_ = *session;
      report_.session_id = (*session)->id();
      given_up = final_status_.has_value();
      outgoing_.push_front(std::move(response));  // before any notice
    }
    core_.doorkeeper.Cancel(hello_timer_);
    if (given_up) return core_.sessions.End(*session, EndCause::kLease);
    StartRead(&request_);
    Proceed();
    FaultPoint("session.after_welcome");
  }

  void OnHelloLate() {
    if (CurrentSession() == nullptr) Refuse(NoHello());
  }

  // The session table finishes the stream when everything that was lent is unmapped.
  void EndSession(const std::shared_ptr<Session>& session, EndCause cause) {
    core_.sessions.End(session, cause);
  }

  void Refuse(const absl::Status& status) { FinishWith(status); }

  void Notify(const SessionNotice& notice) {
    v1::AttachResponse response;
    v1::Notice& message = *response.mutable_notice();
    message.set_kind(KindOf(notice.kind));
    message.set_deadline_ms(notice.deadline_ms);
    message.set_reason(std::string(notice.reason));
    {
      MutexLock lock(&mutex_);
      if (final_status_.has_value()) return;
      if (outgoing_.size() >= kMaxQueuedNotices) {
        // A client that does not read cannot be told that it is too slow. The context is alive:
        // without a final status nobody has finished the stream.
        context_->TryCancel();
        return;
      }
      outgoing_.push_back(std::move(response));
    }
    Proceed();
  }

  // The first status counts; it is sent when what is queued has been written.
  void FinishWith(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (final_status_.has_value()) return;
      final_status_ = status;
      if (status.code() == absl::StatusCode::kCancelled) outgoing_.clear();
    }
    Proceed();
  }

  // Starts the next write, or the finish. Both at most once at a time, and nothing after the
  // finish.
  void Proceed() {
    std::optional<absl::Status> finish;
    CallReport report;
    {
      MutexLock lock(&mutex_);
      // Until there is a session, a notice waits: Welcome is first.
      if (writing_ || finishing_) return;
      if (!outgoing_.empty() && session_ != nullptr) {
        current_ = std::move(outgoing_.front());
        outgoing_.pop_front();
        writing_ = true;
      } else if (final_status_.has_value()) {
        finishing_ = true;
        finish = final_status_;
        report = report_;
      } else {
        return;
      }
    }
    if (!finish.has_value()) return StartWrite(&current_);
    const uint64_t log_id = ReportCall(core_, report, *finish);
    Finish(finish->code() == absl::StatusCode::kCancelled
               ? grpc::Status::CANCELLED
               : ToGrpcStatus(*finish, core_.epoch, log_id));
  }

  RpcCore& core_;
  CallbackServerContext* const context_;  // as long as this object
  std::shared_ptr<AttachStream> self_;    // gRPC's share, until OnDone
  uint64_t hello_timer_ = 0;
  v1::AttachRequest request_;   // of the read under way
  v1::AttachResponse current_;  // of the write under way

  Mutex mutex_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::AttachResponse> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> final_status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  CallReport report_ ABSL_GUARDED_BY(mutex_);
};

class SessionService final : public v1::SessionService::CallbackService {
 public:
  explicit SessionService(RpcCore& core) : core_(core) {}

 private:
  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* Attach(
      CallbackServerContext* context) override {
    const auto stream = std::make_shared<AttachStream>(core_, context);
    stream->Start();
    return stream.get();
  }

  grpc::ServerUnaryReactor* GetServerInfo(CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* /*request*/,
                                          v1::GetServerInfoResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kGetServerInfo,
                                 absl::Milliseconds(kDefaultDeadlineMs));
    if (call->finished()) return call->reactor();
    FillServerInfo(core_, *response);
    call->Finish(absl::OkStatus());
    return call->reactor();
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core) {
  return std::make_unique<SessionService>(core);
}

}  // namespace kvtriage
