#include "service/rpc/layers_rpc.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/mutex.h"
#include "service/observe/fault_point.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/error_status.h"
#include "service/rpc/unary_call.h"
#include "service/validate/body_hash.h"
#include "service/validate/layers_proto.h"

namespace kvtriage {
namespace {

using Request = v1::CompressLayersRequest;
using Response = v1::CompressLayersResponse;

constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);

// gRPC holds it until the stream is done; the engine's callbacks hold it weakly. Reads, writes and
// the finish each have at most one operation under way; the mutex says which. A client that does
// not read its answers, or sends layers faster than the lane takes them, is not read from.
class LayersReactor final : public grpc::ServerBidiReactor<Request, Response>,
                            public std::enable_shared_from_this<LayersReactor> {
 public:
  LayersReactor(RpcCore& core, grpc::CallbackServerContext* context)
      : core_(core), context_(context) {
    report_.method = RpcMethod::kCompressLayers;
    report_.begin = begin_;
    report_.trace_id = TraceIdOf(OnlyMetadata(*context, "traceparent").value_or(""));
  }

  // Called once, by the handler.
  void Start() {
    self_ = shared_from_this();
    context_->AddTrailingMetadata(kEpochMetadata, EpochBytes(core_.epoch));
    absl::StatusOr<PassedCall> passed =
        PassChecks(core_, *context_, RpcMethod::kCompressLayers, begin_, kUsual);
    if (!passed.ok()) return FinishWith(passed.status());
    passed_ = *std::move(passed);
    {
      MutexLock lock(&mutex_);
      report_.session_id = passed_.session->id();
    }
    const int64_t left_ms = absl::ToInt64Milliseconds(passed_.deadline - absl::Now());
    timer_ = core_.doorkeeper.After(static_cast<uint64_t>(std::max<int64_t>(0, left_ms)),
                                    [weak = weak_from_this()] {
                                      if (const auto stream = weak.lock()) stream->OnDeadline();
                                    });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    std::shared_ptr<LayerStream> stream;
    {
      MutexLock lock(&mutex_);
      reading_ = false;
      half_closed_ = !ok;
      stream = engine_stream_;
    }
    if (stream == nullptr) return OnFirst(ok);
    if (!ok) return core_.engine.CloseLayers(stream);
    const absl::StatusOr<LayerReadySpec> layer = ParseLayerReady(request_);
    if (!layer.ok()) return core_.engine.DropLayers(stream, layer.status());
    {
      MutexLock lock(&mutex_);
      ++unanswered_;
    }
    core_.engine.AddLayer(stream,
                          {layer->header, LayerHash(open_body_, layer->layer), layer->layer});
    ReadOn();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (current_.has_layer()) --unanswered_;
      if (!ok) outgoing_.clear();  // the stream is broken: only the finish is left
    }
    Proceed();
    ReadOn();
  }

  void OnCancel() override {
    std::shared_ptr<LayerStream> stream;
    {
      MutexLock lock(&mutex_);
      stream = engine_stream_;
      outgoing_.clear();
    }
    if (stream != nullptr) core_.engine.DropLayers(stream, Cancelled());
    FinishWith(Cancelled());
  }

  void OnDone() override {
    core_.doorkeeper.Cancel(timer_);
    const std::shared_ptr<LayersReactor> last = std::move(self_);
  }

 private:
  static absl::Status Cancelled() {
    return Error(ErrorReason::kKeyDead, "", "the stream was cancelled by its client");
  }

  void OnFirst(bool ok) {
    absl::StatusOr<CompressSpec> spec =
        ok ? ParseLayersOpen(request_, core_.limits, core_.policy)
           : absl::StatusOr<CompressSpec>(Error(ErrorReason::kFieldMissing, "open",
                                                "the stream ended before its first message"));
    if (!spec.ok()) return FinishWith(spec.status());
    open_body_ = BodyHash(request_.open());
    const std::weak_ptr<LayersReactor> weak = weak_from_this();
    LayersCall call;
    call.session = passed_.session;
    call.deadline = passed_.deadline;
    call.opened = [weak](const CallResult& result) {
      if (const auto stream = weak.lock()) stream->OnOpened(result);
    };
    call.layer_done = [weak](uint32_t layer, const CallResult& result) {
      if (const auto stream = weak.lock()) stream->OnLayerDone(layer, result);
    };
    call.ended = [weak](const CallResult& result) {
      if (const auto stream = weak.lock()) stream->OnEnded(result);
    };
    std::shared_ptr<LayerStream> stream =
        core_.engine.OpenLayers(std::move(call), *std::move(spec));
    bool given_up = false;
    {
      MutexLock lock(&mutex_);
      engine_stream_ = stream;
      given_up = final_status_.has_value();
    }
    // Cancelled, or refused, meanwhile.
    if (given_up) return core_.engine.DropLayers(stream, Cancelled());
    ReadOn();
  }

  void OnOpened(const CallResult& result) {
    Response response;
    FillOpened(result, core_.epoch, *response.mutable_opened());
    {
      MutexLock lock(&mutex_);
      opened_ = true;
      report_.job_id = result.answer->job_id;
      outgoing_.push_back(std::move(response));
    }
    Proceed();
    ReadOn();
  }

  void OnLayerDone(uint32_t layer, const CallResult& result) {
    Response response;
    FillLayerDone(result, core_.epoch, layer, *response.mutable_layer());
    {
      MutexLock lock(&mutex_);
      if (final_status_.has_value()) return;
      outgoing_.push_back(std::move(response));
    }
    Proceed();
  }

  void OnEnded(const CallResult& result) {
    if (result.status.ok()) {
      Response response;
      FillCompressResponse(result, core_.epoch, *response.mutable_closed());
      MutexLock lock(&mutex_);
      if (!final_status_.has_value()) outgoing_.push_back(std::move(response));
    }
    FinishWith(result.status);
  }

  void OnDeadline() {
    std::shared_ptr<LayerStream> stream;
    {
      MutexLock lock(&mutex_);
      stream = engine_stream_;
    }
    const absl::Status late =
        Error(ErrorReason::kDeadlineUnmeetable, "", "the stream's deadline passed");
    if (stream == nullptr) return FinishWith(late);
    core_.engine.DropLayers(stream, late);
  }

  // Reads the next message when there is room for it: after Opened, and while fewer layers wait for
  // their answers than the session may have jobs. The lock is held over StartRead, so that no
  // finish gets between.
  void ReadOn() {
    MutexLock lock(&mutex_);
    if (!opened_ || engine_stream_ == nullptr || reading_ || half_closed_) return;
    if (final_status_.has_value() || unanswered_ >= core_.limits.max_in_flight) return;
    reading_ = true;
    StartRead(&request_);
  }

  // The first status counts; it is sent when what is queued has been written.
  void FinishWith(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (final_status_.has_value()) return;
      final_status_ = status;
    }
    Proceed();
  }

  // Starts the next write, or the finish: one at a time, and nothing after the finish.
  void Proceed() {
    std::optional<absl::Status> finish;
    CallReport report;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finishing_) return;
      if (!outgoing_.empty()) {
        current_ = std::move(outgoing_.front());
        outgoing_.pop_front();
        writing_ = true;
      } else if (final_status_.has_value()) {
        finishing_ = true;
        finish = OwnError(*final_status_);
        report = report_;
      } else {
        return;
      }
    }
    if (!finish.has_value()) return StartWrite(&current_);
    const uint64_t log_id = ReportCall(core_, report, *finish);
    FaultPoint("rpc.before_finish");
    Finish(ToGrpcStatus(*finish, core_.epoch, log_id));
    FaultPoint("rpc.after_finish");
  }

  RpcCore& core_;
  grpc::CallbackServerContext* const context_;  // as long as this object
  const absl::Time begin_ = absl::Now();
  std::shared_ptr<LayersReactor> self_;  // gRPC's share, until OnDone
  PassedCall passed_;
  uint64_t timer_ = 0;
  BodyDigest open_body_;
  Request request_;   // of the read under way
  Response current_;  // of the write under way

  Mutex mutex_;
  std::shared_ptr<LayerStream> engine_stream_ ABSL_GUARDED_BY(mutex_);
  std::deque<Response> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> final_status_ ABSL_GUARDED_BY(mutex_);
  uint32_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;  // layers that were read
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;  // from Start on
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  CallReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerBidiReactor<Request, Response>* StartLayersStream(
    RpcCore& core, grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<LayersReactor>(core, context);
  stream->Start();
  return stream.get();
}

}  // namespace kvtriage
