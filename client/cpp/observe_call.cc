#include "client/cpp/observe_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client/cpp/compress_call.h"
#include "client/cpp/fates.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/local_error.h"
#include "client/cpp/observe_proto.h"
#include "client/cpp/retry.h"
#include "client/cpp/settle.h"

namespace kvtriage::client {
namespace {

// Asks the service with `question`, which is the call with another header.
template <typename Message, typename Response>
SettleSources SourcesOf(Link& link, const Message& message, Response* response) {
  SettleSources sources;
  sources.resolve = [&link, &message, response](absl::Time deadline) {
    Message question = message;
    question.mutable_header()->set_resolve(true);
    return link.transport().Call(question, response, deadline);
  };
  sources.lost = [&link] { return link.lost(); };
  sources.quiet = [&link] { return link.ledger().SessionClosed() || link.life().WaitGone(1); };
  return sources;
}

class ObserveCall {
 public:
  ObserveCall(Link& link, const CacheSpec& cache, const ObserveRequest& request,
              const CallOptions& options, absl::Duration settle)
      : link_(link),
        request_(request),
        retry_(options.retry),
        deadline_(DeadlineOf(options)),
        settle_(settle),
        heads_(HeadsOf(cache, {})),
        block_slots_(cache.layers.empty() ? 1 : std::max(1u, cache.layers.front().k.block_slots)) {}

  ObserveOutcome Run() {
    if (!WritesInPlace(request_)) return Send(0);
    std::optional<LedgerSlots::Lease> lease = link_.slots().Acquire(deadline_);
    if (!lease.has_value()) {
      return WithoutEffect(request_, Outcome::kUnchanged,
                           LocalError(absl::StatusCode::kDeadlineExceeded, "ledger_slots_busy",
                                      "every ledger slot of this session was busy"));
    }
    ObserveOutcome outcome = Send(lease->slot());
    if (outcome.quarantine != 0) lease->Keep();
    return outcome;
  }

 private:
  ObserveOutcome Send(uint32_t slot) {
    slot_ = slot;
    message_ = ToProto(request_, slot, link_.ids());
    message_.mutable_header()->set_idempotency_key(std::string(AsBytes(key_)));
    absl::Status status = WithRetry(
        retry_, deadline_, [&] { return link_.transport().Call(message_, &response_, deadline_); });
    // Even a call that writes no rows is settled: the next one depends on whether this one counts.
    return status.ok() ? Answered() : AfterError(std::move(status));
  }

  ObserveOutcome Answered() {
    absl::StatusOr<ObserveResult> result = FromProto(response_, request_, heads_);
    // Applied, whatever the answer looks like: the ledger has the lengths.
    if (!result.ok()) return ReadSlot(result.status(), Writer::kActive);
    ObserveOutcome outcome;
    outcome.outcome = Outcome::kApplied;
    outcome.fates = FatesOfAnswer(*result, request_.steps);
    outcome.result = *std::move(result);
    return outcome;
  }

  ObserveOutcome AfterError(absl::Status status) {
    // The call's own deadline may be long past when the connection broke only now.
    const absl::Time limit = std::max(deadline_, absl::Now()) + settle_;
    switch (Settle(status, SourcesOf(link_, message_, &response_), limit)) {
      case Verdict::kAnswered:
        return Answered();
      case Verdict::kUnharmed:
        return WithoutEffect(request_, Outcome::kUnchanged, std::move(status));
      case Verdict::kReadSlot:
        return ReadSlot(std::move(status), Writer::kActive);
      case Verdict::kReadQuiet:
        return ReadSlot(std::move(status), Writer::kQuiet);
      case Verdict::kUnknown:
        break;
    }
    return Unsettled(std::move(status));
  }

  ObserveOutcome ReadSlot(absl::Status status, Writer writer) {
    if (!WritesInPlace(request_)) {
      return WithoutEffect(request_, Outcome::kUnchanged, std::move(status));
    }
    const SlotReading reading = link_.ledger().Read(slot_, key_, writer);
    if (reading.state == SlotState::kUnsettled) return Unsettled(std::move(status));
    ObserveOutcome outcome;
    outcome.status = std::move(status);
    outcome.fates =
        FatesOfSlot(reading, request_.steps, static_cast<uint32_t>(heads_.size()), block_slots_);
    outcome.outcome = OutcomeOf(outcome.fates);
    return outcome;
  }

  ObserveOutcome Unsettled(absl::Status status) const {
    ObserveOutcome outcome =
        WithoutEffect(request_, WritesInPlace(request_) ? Outcome::kDamaged : Outcome::kUnchanged,
                      std::move(status));
    outcome.quarantine = 1;
    return outcome;
  }

  Link& link_;
  const ObserveRequest& request_;
  const bool retry_;
  const absl::Time deadline_;
  const absl::Duration settle_;
  const std::vector<uint32_t> heads_;
  const uint32_t block_slots_;
  const IdempotencyKey key_ = NewKey();
  uint32_t slot_ = 0;
  v1::ObserveRequest message_;
  v1::ObserveResponse response_;
};

}  // namespace

ObserveOutcome RunObserve(Link& link, const CacheSpec& cache, const ObserveRequest& request,
                          const CallOptions& options, absl::Duration settle) {
  return ObserveCall(link, cache, request, options, settle).Run();
}

absl::StatusOr<RewindResult> RunRewind(Link& link, const RewindRequest& request,
                                       const CallOptions& options, absl::Duration settle) {
  v1::RewindRequest message = ToProto(request);
  message.mutable_header()->set_idempotency_key(std::string(AsBytes(NewKey())));
  v1::RewindResponse response;
  const absl::Time deadline = DeadlineOf(options);
  const absl::Status status = WithRetry(
      options.retry, deadline, [&] { return link.transport().Call(message, &response, deadline); });
  if (!status.ok()) {
    const absl::Time limit = std::max(deadline, absl::Now()) + settle;
    const Verdict verdict = Settle(status, SourcesOf(link, message, &response), limit);
    if (verdict != Verdict::kAnswered) return status;
  }
  return RewindResult{response.draft_rows(), response.physical_len()};
}

ObserveOutcome WithoutEffect(const ObserveRequest& request, Outcome outcome, absl::Status status) {
  ObserveOutcome out;
  out.outcome = outcome;
  out.status = std::move(status);
  out.fates =
      FatesAll(request.steps, outcome == Outcome::kUnavailable ? Outcome::kUnchanged : outcome);
  return out;
}

}  // namespace kvtriage::client
