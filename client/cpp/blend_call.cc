#include "client/cpp/blend_call.h"

#include <algorithm>
#include <utility>

#include "client/cpp/blend_proto.h"
#include "client/cpp/fates.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/local_error.h"
#include "client/cpp/retry.h"
#include "client/cpp/settle.h"

namespace kvtriage::client {
namespace {

uint64_t RowsOf(const v1::RerotateResponse& response) { return response.rows_rotated(); }
uint64_t RowsOf(const v1::FuseResponse& response) { return response.rows_written(); }

RowsOutcome Ended(Outcome outcome, absl::Status status) {
  RowsOutcome out;
  out.outcome = outcome;
  out.status = std::move(status);
  return out;
}

// A call that overwrites rows of one sequence where they stand, or copies them.
template <typename Request, typename Message, typename Response>
class RowsCall {
 public:
  RowsCall(Link& link, const CacheSpec& cache, const Request& request, bool in_place,
           const CallOptions& options, absl::Duration settle)
      : link_(link),
        request_(request),
        in_place_(in_place),
        retry_(options.retry),
        deadline_(DeadlineOf(options)),
        settle_(settle),
        layers_(static_cast<uint32_t>(request.layers.empty() ? cache.layers.size()
                                                             : request.layers.size())),
        block_slots_(cache.layers.empty() ? 1 : std::max(1u, cache.layers.front().k.block_slots)) {}

  RowsOutcome Run() {
    if (!in_place_) return Send(0);
    std::optional<LedgerSlots::Lease> lease = link_.slots().Acquire(deadline_);
    if (!lease.has_value()) {
      return Ended(Outcome::kUnchanged,
                   LocalError(absl::StatusCode::kDeadlineExceeded, "ledger_slots_busy",
                              "every ledger slot of this session was busy"));
    }
    RowsOutcome outcome = Send(lease->slot());
    if (outcome.quarantine != 0) lease->Keep();
    return outcome;
  }

 private:
  RowsOutcome Send(uint32_t slot) {
    slot_ = slot;
    message_ = ToProto(request_, slot, link_.ids());
    message_.mutable_header()->set_idempotency_key(std::string(AsBytes(key_)));
    absl::Status status = WithRetry(
        retry_, deadline_, [&] { return link_.transport().Call(message_, &response_, deadline_); });
    return status.ok() ? Answered() : AfterError(std::move(status));
  }

  RowsOutcome Answered() const {
    RowsOutcome outcome = Ended(Outcome::kApplied, absl::OkStatus());
    outcome.kv_revision = response_.kv_revision();
    outcome.rows = RowsOf(response_);
    return outcome;
  }

  RowsOutcome AfterError(absl::Status status) {
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
        return Ended(Outcome::kUnchanged, std::move(status));
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
    Message question = message_;
    question.mutable_header()->set_resolve(true);
    return link_.transport().Call(question, &response_, deadline);
  }

  RowsOutcome ReadSlot(absl::Status status, Writer writer) {
    // A copy leaves the source alone whatever happens; its destination is garbage nobody points at.
    if (!in_place_) return Ended(Outcome::kUnchanged, std::move(status));
    const SlotReading reading = link_.ledger().Read(slot_, key_, writer);
    if (reading.state == SlotState::kUnsettled) return Unsettled(std::move(status));
    const SequenceFate fate =
        FatesOfSlot(reading, {request_.sequence}, layers_, block_slots_).front();
    RowsOutcome outcome = Ended(fate.outcome, std::move(status));
    outcome.kv_revision = fate.kv_revision;
    return outcome;
  }

  RowsOutcome Unsettled(absl::Status status) const {
    RowsOutcome outcome =
        Ended(in_place_ ? Outcome::kDamaged : Outcome::kUnchanged, std::move(status));
    outcome.quarantine = 1;
    return outcome;
  }

  Link& link_;
  const Request& request_;
  const bool in_place_;
  const bool retry_;
  const absl::Time deadline_;
  const absl::Duration settle_;
  const uint32_t layers_;
  const uint32_t block_slots_;
  const IdempotencyKey key_ = NewKey();
  uint32_t slot_ = 0;
  Message message_;
  Response response_;
};

}  // namespace

RowsOutcome RunRerotate(Link& link, const CacheSpec& cache, const RerotateRequest& request,
                        const CallOptions& options, absl::Duration settle) {
  const bool in_place = std::holds_alternative<InPlace>(request.act);
  return RowsCall<RerotateRequest, v1::RerotateRequest, v1::RerotateResponse>(
             link, cache, request, in_place, options, settle)
      .Run();
}

RowsOutcome RunFuse(Link& link, const CacheSpec& cache, const FuseRequest& request,
                    const CallOptions& options, absl::Duration settle) {
  return RowsCall<FuseRequest, v1::FuseRequest, v1::FuseResponse>(link, cache, request, true,
                                                                  options, settle)
      .Run();
}

}  // namespace kvtriage::client
