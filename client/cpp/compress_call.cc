#include "client/cpp/compress_call.h"

#include <algorithm>
#include <utility>

#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/fates.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/local_error.h"
#include "client/cpp/retry.h"
#include "client/cpp/settle.h"

namespace kvtriage::client {

std::vector<uint32_t> HeadsOf(const CacheSpec& cache, const std::vector<int32_t>& layers) {
  std::vector<uint32_t> heads;
  for (size_t i = 0; layers.empty() && i < cache.layers.size(); ++i)
    heads.push_back(cache.layers[i].kv_heads);
  for (const int32_t layer : layers) {
    const bool known = layer >= 0 && static_cast<size_t>(layer) < cache.layers.size();
    heads.push_back(known ? cache.layers[static_cast<size_t>(layer)].kv_heads
                          : 0);  // refused when unknown
  }
  return heads;
}

namespace {

class CompressCall {
 public:
  CompressCall(Link& link, const CacheSpec& cache, const CompressRequest& request,
               const CallOptions& options, absl::Duration settle)
      : link_(link),
        request_(request),
        retry_(options.retry),
        deadline_(DeadlineOf(options)),
        settle_(settle),
        heads_(HeadsOf(cache, request.layers)),
        block_slots_(cache.layers.empty() ? 1 : std::max(1u, cache.layers.front().k.block_slots)) {}

  CompressOutcome Run() {
    if (!std::holds_alternative<InPlace>(request_.act)) return Send(0);
    std::optional<LedgerSlots::Lease> lease = link_.slots().Acquire(deadline_);
    if (!lease.has_value()) {
      return WithoutEffect(request_, Outcome::kUnchanged,
                           LocalError(absl::StatusCode::kDeadlineExceeded, "ledger_slots_busy",
                                      "every ledger slot of this session was busy"));
    }
    CompressOutcome outcome = Send(lease->slot());
    if (outcome.quarantine != 0) lease->Keep();
    return outcome;
  }

 private:
  CompressOutcome Send(uint32_t slot) {
    slot_ = slot;
    message_ = ToProto(request_, slot, link_.ids());
    message_.mutable_header()->set_idempotency_key(std::string(AsBytes(key_)));
    absl::Status status = WithRetry(
        retry_, deadline_, [&] { return link_.transport().Call(message_, &response_, deadline_); });
    if (status.ok()) return Answered();
    if (std::holds_alternative<SelectOnly>(request_.act)) {
      return WithoutEffect(request_, Outcome::kUnchanged, std::move(status));
    }
    return AfterError(std::move(status));
  }

  CompressOutcome Answered() {
    absl::StatusOr<CompressResult> result = FromProto(response_, request_, heads_);
    // Applied, whatever the answer looks like: the ledger has the lengths.
    if (!result.ok()) return ReadSlot(result.status(), Writer::kActive);
    CompressOutcome outcome;
    outcome.outcome = Outcome::kApplied;
    outcome.fates = FatesOfAnswer(*result);
    outcome.result = *std::move(result);
    return outcome;
  }

  CompressOutcome AfterError(absl::Status status) {
    SettleSources sources;
    sources.resolve = [this](absl::Time deadline) { return Resolve(deadline); };
    sources.lost = [this] { return link_.lost(); };
    sources.quiet = [this] { return link_.ledger().SessionClosed() || link_.life().WaitGone(1); };
    // The call's own deadline may be long past when the connection broke only now.
    const absl::Time limit = std::max(deadline_, absl::Now()) + settle_;
    switch (Settle(status, sources, limit)) {
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

  absl::Status Resolve(absl::Time deadline) {
    v1::CompressRequest question = message_;
    question.mutable_header()->set_resolve(true);
    return link_.transport().Call(question, &response_, deadline);
  }

  CompressOutcome ReadSlot(absl::Status status, Writer writer) {
    // A copy leaves the source alone whatever happens; its destination is garbage nobody points at.
    if (!std::holds_alternative<InPlace>(request_.act)) {
      return WithoutEffect(request_, Outcome::kUnchanged, std::move(status));
    }
    const SlotReading reading = link_.ledger().Read(slot_, key_, writer);
    if (reading.state == SlotState::kUnsettled) return Unsettled(std::move(status));
    CompressOutcome outcome;
    outcome.status = std::move(status);
    outcome.fates = FatesOfSlot(reading, request_.sequences, static_cast<uint32_t>(heads_.size()),
                                block_slots_);
    outcome.outcome = OutcomeOf(outcome.fates);
    return outcome;
  }

  CompressOutcome Unsettled(absl::Status status) {
    const bool copy = std::holds_alternative<CopyTo>(request_.act);
    CompressOutcome outcome =
        WithoutEffect(request_, copy ? Outcome::kUnchanged : Outcome::kDamaged, std::move(status));
    outcome.quarantine = 1;
    return outcome;
  }

  Link& link_;
  const CompressRequest& request_;
  const bool retry_;
  const absl::Time deadline_;
  const absl::Duration settle_;
  const std::vector<uint32_t> heads_;
  const uint32_t block_slots_;
  const IdempotencyKey key_ = NewKey();
  uint32_t slot_ = 0;
  v1::CompressRequest message_;
  v1::CompressResponse response_;
};

}  // namespace

CompressOutcome RunCompress(Link& link, const CacheSpec& cache, const CompressRequest& request,
                            const CallOptions& options, absl::Duration settle) {
  return CompressCall(link, cache, request, options, settle).Run();
}

CompressOutcome WithoutEffect(const CompressRequest& request, Outcome outcome,
                              absl::Status status) {
  CompressOutcome out;
  out.outcome = outcome;
  out.status = std::move(status);
  out.fates =
      FatesAll(request.sequences, outcome == Outcome::kUnavailable ? Outcome::kUnchanged : outcome);
  return out;
}

}  // namespace kvtriage::client
