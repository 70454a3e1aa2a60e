#include "client/cpp/observe_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/cpp/compress_call.h"
#include "client/cpp/fates.h"
#include "client/cpp/observe_proto.h"
#include "client/cpp/writing_call.h"

namespace kvtriage::client {
namespace {

class ObserveCall final
    : public WritingCall<v1::ObserveRequest, v1::ObserveResponse, ObserveOutcome> {
 public:
  // Even a call that writes no rows is settled: the next one depends on whether this one counts.
  ObserveCall(Link& link, const CacheSpec& cache, const ObserveRequest& request,
              const CallOptions& options, absl::Duration settle)
      : WritingCall(link, WritesInPlace(request) ? Writes::kInPlace : Writes::kElsewhere, options,
                    settle),
        request_(request),
        heads_(HeadsOf(cache, {})),
        block_slots_(BlockSlotsOf(cache)) {}

 private:
  v1::ObserveRequest Make(uint32_t slot, MemoryIds& ids) const override {
    return ToProto(request_, slot, ids);
  }

  ObserveOutcome Answered(const v1::ObserveResponse& response) override {
    absl::StatusOr<ObserveResult> result = FromProto(response, request_, heads_);
    if (!result.ok()) return Unreadable(result.status());
    ObserveOutcome outcome;
    outcome.outcome = Outcome::kApplied;
    outcome.fates = FatesOfAnswer(*result, request_.steps);
    outcome.result = *std::move(result);
    return outcome;
  }

  ObserveOutcome Ended(Outcome outcome, absl::Status status) const override {
    return WithoutEffect(request_, outcome, std::move(status));
  }

  ObserveOutcome OfSlot(const SlotReading& reading, absl::Status status) const override {
    ObserveOutcome outcome;
    outcome.status = std::move(status);
    outcome.fates =
        FatesOfSlot(reading, request_.steps, static_cast<uint32_t>(heads_.size()), block_slots_);
    outcome.outcome = OutcomeOf(outcome.fates);
    return outcome;
  }

  const ObserveRequest& request_;
  const std::vector<uint32_t> heads_;
  const uint32_t block_slots_;
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
    const Verdict verdict = Settle(status, SettleSourcesOf(link, message, &response), limit);
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
