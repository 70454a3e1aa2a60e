#include "client/cpp/attach_stream.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/cpp/grpc_channel.h"
#include "client/cpp/local_error.h"
#include "client/cpp/steady_time.h"
#include "kernels/core/mutex.h"
#include "kvtriage/v1/session.grpc.pb.h"

namespace kvtriage::client {
namespace {

constexpr absl::Duration kStopPoll = absl::Milliseconds(20);

}  // namespace

// A hold keeps the reactor from finishing while we may still start an operation from outside; it is
// dropped exactly once, by Goodbye or by the end of the stream.
class AttachStream::Reactor final
    : public grpc::ClientBidiReactor<v1::AttachRequest, v1::AttachResponse> {
 public:
  Reactor(Transport& transport, AttachEvents events)
      : stub_(transport.channel().channel), events_(std::move(events)) {}

  void Start(const v1::AttachRequest::Hello& hello) {
    *request_.mutable_hello() = hello;
    stub_.async()->Attach(&context_, this);
    AddHold();
    StartRead(&response_);
    StartWrite(&request_);
    StartCall();
  }

  // OK once the Welcome is there.
  absl::Status WaitWelcome(absl::Time deadline, const std::atomic<bool>& stop) {
    MutexLock lock(&mutex_);
    while (!welcomed_ && !done_ && !stop.load() && absl::Now() < deadline) {
      changed_.WaitUntil(&mutex_, SteadyTime(std::min(deadline, absl::Now() + kStopPoll)));
    }
    if (welcomed_ && !done_) return absl::OkStatus();
    if (done_ && !status_.ok()) return status_;
    return LocalError(
        absl::StatusCode::kUnavailable, "not_kvtriage",
        done_ ? "the service closed the stream without a word" : "no Welcome in time");
  }

  void SayGoodbye() {
    {
      MutexLock lock(&mutex_);
      while (!hello_sent_ && !done_) changed_.Wait(&mutex_);
      if (!TakeHold()) return;
    }
    request_.mutable_goodbye();
    StartWriteLast(&request_, grpc::WriteOptions());
    RemoveHold();
  }

  void Cancel() { context_.TryCancel(); }

  void WaitDone(absl::Time deadline) {
    const auto end = SteadyTime(deadline);
    MutexLock lock(&mutex_);
    while (!done_ && changed_.WaitUntil(&mutex_, end)) {
    }
  }

  // For the destructor: gRPC still uses this object before.
  void WaitDone() {
    MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
  }

  bool lost() const {
    MutexLock lock(&mutex_);
    return lost_;
  }

  const v1::Welcome& welcome() const { return welcome_; }  // after WaitWelcome

  void OnWriteDone(bool) override {
    MutexLock lock(&mutex_);
    hello_sent_ = true;
    changed_.NotifyAll();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return EndOfStream();
    if (response_.has_welcome()) {
      MutexLock lock(&mutex_);
      if (!welcomed_) welcome_ = response_.welcome();
      welcomed_ = true;
      changed_.NotifyAll();
    } else if (response_.has_notice()) {
      events_.notice(response_.notice());
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mutex_);
    status_ = FromGrpc(status);
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  void EndOfStream() {
    bool drop = false;
    {
      MutexLock lock(&mutex_);
      lost_ = true;
      drop = TakeHold();
    }
    events_.lost();
    if (drop) RemoveHold();
  }

  bool TakeHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return std::exchange(held_, false); }

  v1::SessionService::Stub stub_;
  grpc::ClientContext context_;
  AttachEvents events_;
  v1::AttachRequest request_;    // of the write in flight
  v1::AttachResponse response_;  // of the read in flight
  mutable Mutex mutex_;
  CondVar changed_;
  v1::Welcome welcome_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = true;
  bool hello_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

AttachStream::AttachStream(std::unique_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}

AttachStream::~AttachStream() {
  reactor_->Cancel();  // a cancelled stream ends its read, which drops the hold
  reactor_->WaitDone();
}

absl::StatusOr<std::unique_ptr<AttachStream>> AttachStream::Open(
    Transport& transport, const v1::AttachRequest::Hello& hello, AttachEvents events,
    absl::Time deadline, const std::atomic<bool>& stop) {
  auto reactor = std::make_unique<Reactor>(transport, std::move(events));
  reactor->Start(hello);
  std::unique_ptr<AttachStream> stream(new AttachStream(std::move(reactor)));
  const absl::Status status = stream->reactor_->WaitWelcome(deadline, stop);
  if (!status.ok()) return status;
  return stream;
}

const v1::Welcome& AttachStream::welcome() const { return reactor_->welcome(); }

bool AttachStream::lost() const { return reactor_->lost(); }

void AttachStream::Goodbye(uint64_t timeout_ms) {
  reactor_->SayGoodbye();
  reactor_->WaitDone(absl::Now() + absl::Milliseconds(static_cast<int64_t>(timeout_ms)));
}

}  // namespace kvtriage::client
