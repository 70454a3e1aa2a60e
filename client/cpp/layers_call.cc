#include "client/cpp/layers_call.h"

#include <algorithm>
#include <utility>

#include "client/cpp/compress_call.h"
#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/fates.h"
#include "client/cpp/local_error.h"
#include "client/cpp/policy_proto.h"
#include "client/cpp/retry.h"
#include "client/cpp/settle.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr absl::Duration kSlotPoll = absl::Milliseconds(1);

absl::Status StreamOver() {
  return LocalError(absl::StatusCode::kUnavailable, "stream_over",
                    "the stream has ended; Close says why");
}

}  // namespace

LayersCall::LayersCall(std::shared_ptr<Link> link, const CacheSpec& cache,
                       const CompressRequest& request, const CallOptions& options,
                       absl::Duration settle, std::function<uint64_t()> quarantine)
    : link_(std::move(link)),
      request_(request),
      retry_(options.retry),
      deadline_(DeadlineOf(options)),
      settle_(settle),
      quarantine_(std::move(quarantine)),
      cache_(cache),
      heads_(HeadsOf(cache, request.layers)) {}

absl::Status LayersCall::Open() {
  if (InPlaceCall()) {
    std::optional<LedgerSlots::Lease> lease = link_->slots().Acquire(deadline_);
    if (!lease.has_value()) {
      return LocalError(absl::StatusCode::kDeadlineExceeded, "ledger_slots_busy",
                        "every ledger slot of this session was busy");
    }
    lease_.emplace(*std::move(lease));
  }
  v1::CompressLayersRequest open;
  *open.mutable_open() = ToProto(request_, lease_ ? lease_->slot() : 0, link_->ids());
  return WithRetry(retry_, deadline_, [&] { return TryOpen(open); });
}

absl::Status LayersCall::Ready(uint32_t layer) {
  const IdempotencyKey key = NewKey();
  v1::CompressLayersRequest message;
  message.mutable_layer()->mutable_header()->set_idempotency_key(std::string(AsBytes(key)));
  message.mutable_layer()->set_layer(layer);
  {
    MutexLock lock(&mutex_);
    unanswered_[layer] = key;
  }
  return wire_->Write(message) ? absl::OkStatus() : StreamOver();
}

absl::StatusOr<LayerResult> LayersCall::Next() {
  v1::CompressLayersResponse response;
  if (!wire_->Read(&response)) {
    ReadEnd();
    return end_.ok() ? StreamOver() : end_;
  }
  if (response.has_closed()) whole_ = std::move(*response.mutable_closed());
  if (!response.has_layer()) return StreamOver();
  {
    MutexLock lock(&mutex_);
    unanswered_.erase(response.layer().layer());
  }
  return ResultOf(std::move(*response.mutable_layer()));
}

CompressOutcome LayersCall::Close() {
  wire_->HalfClose();
  return Finish();
}

CompressOutcome LayersCall::Cancel() {
  wire_->Cancel();
  return Finish();
}

bool LayersCall::InPlaceCall() const { return std::holds_alternative<InPlace>(request_.act); }

absl::Status LayersCall::TryOpen(const v1::CompressLayersRequest& open) {
  wire_ = link_->transport().OpenLayers(deadline_);
  v1::CompressLayersResponse response;
  wire_->Write(open);  // when it fails, so does the read, and Finish says why
  bool more = wire_->Read(&response);
  if (more && response.has_opened()) {
    job_id_ = response.opened().header().job_id();
    policy_ = FromProto(response.opened().policy());
    return absl::OkStatus();
  }
  if (more) wire_->Cancel();
  while (more) more = wire_->Read(&response);
  const absl::Status status = wire_->Finish();
  return status.ok() ? LocalError(absl::StatusCode::kInternal, "malformed_answer",
                                  "the stream ended without a word")
                     : status;
}

void LayersCall::ReadEnd() {
  if (finished_) return;
  finished_ = true;
  end_ = wire_->Finish();
}

absl::StatusOr<LayerResult> LayersCall::ResultOf(v1::CompressLayersResponse::LayerDone done) const {
  LayerResult layer;
  layer.layer = done.layer();
  v1::CompressResponse response;
  response.mutable_header()->Swap(done.mutable_header());
  response.mutable_results()->Swap(done.mutable_results());
  KVTRIAGE_ASSIGN_OR_RETURN(
      layer.result,
      FromProto(response, request_, HeadsOf(cache_, {static_cast<int32_t>(layer.layer)})));
  return layer;
}

CompressOutcome LayersCall::Finish() {
  v1::CompressLayersResponse response;
  while (!finished_) {
    if (!wire_->Read(&response)) {
      ReadEnd();
      break;
    }
    if (response.has_closed()) whole_ = std::move(*response.mutable_closed());
    MutexLock lock(&mutex_);
    if (response.has_layer()) unanswered_.erase(response.layer().layer());
  }
  CompressOutcome outcome = end_.ok() ? Answered() : AfterError(end_);
  if (outcome.quarantine != 0) {
    if (lease_.has_value()) lease_->Keep();
    outcome.quarantine = quarantine_();
  }
  lease_.reset();
  settled_ = true;
  return outcome;
}

CompressOutcome LayersCall::Answered() {
  absl::StatusOr<CompressResult> result = FromProto(whole_, request_, heads_);
  // Applied, whatever the answer looks like: the ledger has the lengths.
  if (!result.ok()) return ReadSlot(result.status(), Writer::kActive);
  CompressOutcome outcome;
  outcome.outcome = Outcome::kApplied;
  outcome.fates = FatesOfAnswer(*result);
  outcome.result = *std::move(result);
  return outcome;
}

CompressOutcome LayersCall::AfterError(const absl::Status& status) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  const bool unharmed = details.has_value() && details->from_service && details->unharmed;
  if (unharmed || std::holds_alternative<SelectOnly>(request_.act)) {
    return WithoutEffect(request_, Outcome::kUnchanged, status);
  }
  // The stream's own deadline may be long past when the connection broke only now.
  const absl::Time limit = std::max(deadline_, absl::Now()) + settle_;
  return InPlaceCall() ? WaitForSlot(status, limit) : WaitForCopies(status, limit);
}

// The slot is open from before the first layer until the stream's last layer is over.
CompressOutcome LayersCall::WaitForSlot(const absl::Status& status, absl::Time limit) {
  while (absl::Now() < limit) {
    if (link_->lost()) {
      if (Quiet()) return ReadSlot(status, Writer::kQuiet);
      continue;
    }
    const SlotReading reading =
        link_->ledger().ReadStream(lease_->slot(), job_id_, Writer::kActive);
    if (reading.state != SlotState::kUnsettled) return OfSlot(status, reading);
    absl::SleepFor(kSlotPoll);
  }
  return Unsettled(status);
}

// The sources are whole whatever happened; the destination is written until every layer that has
// no answer is known to be over.
CompressOutcome LayersCall::WaitForCopies(const absl::Status& status, absl::Time limit) {
  std::map<uint32_t, IdempotencyKey> open;
  {
    MutexLock lock(&mutex_);
    open = unanswered_;
  }
  for (const auto& [layer, key] : open) {
    SettleSources sources;
    sources.resolve = [this, &key = key](absl::Time deadline) { return Resolve(key, deadline); };
    sources.lost = [this] { return link_->lost(); };
    sources.quiet = [this] { return Quiet(); };
    const Verdict verdict = Settle(absl::UnknownError(""), sources, limit);
    if (verdict == Verdict::kUnknown) return Unsettled(status);
  }
  return WithoutEffect(request_, Outcome::kUnchanged, status);
}

absl::Status LayersCall::Resolve(const IdempotencyKey& key, absl::Time deadline) {
  v1::CompressRequest question;
  question.mutable_header()->set_idempotency_key(std::string(AsBytes(key)));
  question.mutable_header()->set_resolve(true);
  v1::CompressResponse response;
  return link_->transport().Call(question, &response, deadline);
}

// Waits about a millisecond.
bool LayersCall::Quiet() const {
  return link_->ledger().SessionClosed() || link_->life().WaitGone(1);
}

CompressOutcome LayersCall::ReadSlot(const absl::Status& status, Writer writer) {
  if (!InPlaceCall()) return WithoutEffect(request_, Outcome::kUnchanged, status);
  return OfSlot(status, link_->ledger().ReadStream(lease_->slot(), job_id_, writer));
}

CompressOutcome LayersCall::OfSlot(const absl::Status& status, const SlotReading& reading) {
  if (reading.state == SlotState::kUnsettled) return Unsettled(status);
  CompressOutcome outcome;
  outcome.status = status;
  outcome.fates = FatesOfSlot(reading, request_.sequences, static_cast<uint32_t>(heads_.size()),
                              BlockSlotsOf(cache_));
  outcome.outcome = OutcomeOf(outcome.fates);
  return outcome;
}

CompressOutcome LayersCall::Unsettled(const absl::Status& status) {
  CompressOutcome outcome =
      WithoutEffect(request_, InPlaceCall() ? Outcome::kDamaged : Outcome::kUnchanged, status);
  outcome.quarantine = 1;
  return outcome;
}

LayerStream::LayerStream(std::unique_ptr<LayersCall> call) : call_(std::move(call)) {}

LayerStream::~LayerStream() {
  if (!call_->settled()) call_->Cancel();
}

const PolicyParts& LayerStream::policy() const { return call_->policy(); }
absl::Status LayerStream::Ready(uint32_t layer) { return call_->Ready(layer); }
absl::StatusOr<LayerResult> LayerStream::Next() { return call_->Next(); }
CompressOutcome LayerStream::Close() { return call_->Close(); }
CompressOutcome LayerStream::Cancel() { return call_->Cancel(); }

}  // namespace kvtriage::client
