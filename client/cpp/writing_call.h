// One call that may write rows of the caller's caches, from its ledger slot to what became of it.
#ifndef KVTRIAGE_CLIENT_CPP_WRITING_CALL_H_
#define KVTRIAGE_CLIENT_CPP_WRITING_CALL_H_

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/ledger_reader.h"
#include "client/cpp/link.h"
#include "client/cpp/local_error.h"
#include "client/cpp/retry.h"
#include "client/cpp/settle.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// Asks the service with the call itself under another header.
template <typename Message, typename Response>
SettleSources SettleSourcesOf(Link& link, const Message& message, Response* response) {
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

enum class Writes {
  kNothing,    // and leaves no trace: after an error there is nothing to ask for
  kElsewhere,  // the rows of the call stay as they are, but whether it counts must be known
  kInPlace,    // under a ledger slot
};

// `Result` is an outcome of session.h, with `quarantine`. For one thread and one Run.
template <typename Message, typename Response, typename Result>
class WritingCall {
 public:
  virtual ~WritingCall() = default;
  WritingCall(const WritingCall&) = delete;
  WritingCall& operator=(const WritingCall&) = delete;

  Result Run() {
    if (writes_ != Writes::kInPlace) return Send(0);
    std::optional<LedgerSlots::Lease> lease = link_.slots().Acquire(deadline_);
    if (!lease.has_value()) {
      return Ended(Outcome::kUnchanged,
                   LocalError(absl::StatusCode::kDeadlineExceeded, "ledger_slots_busy",
                              "every ledger slot of this session was busy"));
    }
    Result result = Send(lease->slot());
    if (result.quarantine != 0) lease->Keep();
    return result;
  }

 protected:
  WritingCall(Link& link, Writes writes, const CallOptions& options, absl::Duration settle)
      : link_(link),
        writes_(writes),
        retry_(options.retry),
        deadline_(DeadlineOf(options)),
        settle_(settle) {}

  // The request, but for its key.
  virtual Message Make(uint32_t slot, MemoryIds& ids) const = 0;
  // The call has been answered OK.
  virtual Result Answered(const Response& response) = 0;
  // The same fate for all rows that the call names.
  virtual Result Ended(Outcome outcome, absl::Status status) const = 0;
  // What the ledger slot of a call in place says.
  virtual Result OfSlot(const SlotReading& reading, absl::Status status) const = 0;

  // An answer that cannot be read: the call was applied all the same, and the ledger has the
  // lengths.
  Result Unreadable(absl::Status status) { return ReadSlot(std::move(status), Writer::kActive); }

 private:
  Result Send(uint32_t slot) {
    slot_ = slot;
    message_ = Make(slot, link_.ids());
    message_.mutable_header()->set_idempotency_key(std::string(AsBytes(key_)));
    absl::Status status = WithRetry(
        retry_, deadline_, [&] { return link_.transport().Call(message_, &response_, deadline_); });
    if (status.ok()) return Answered(response_);
    if (writes_ == Writes::kNothing) return Ended(Outcome::kUnchanged, std::move(status));
    return AfterError(std::move(status));
  }

  Result AfterError(absl::Status status) {
    // The call's own deadline may be long past when the connection broke only now.
    const absl::Time limit = std::max(deadline_, absl::Now()) + settle_;
    switch (Settle(status, SettleSourcesOf(link_, message_, &response_), limit)) {
      case Verdict::kAnswered:
        return Answered(response_);
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

  Result ReadSlot(absl::Status status, Writer writer) {
    // A copy leaves the source alone whatever happens; its destination is garbage nobody points at.
    if (writes_ != Writes::kInPlace) return Ended(Outcome::kUnchanged, std::move(status));
    const SlotReading reading = link_.ledger().Read(slot_, key_, writer);
    if (reading.state == SlotState::kUnsettled) return Unsettled(std::move(status));
    return OfSlot(reading, std::move(status));
  }

  Result Unsettled(absl::Status status) const {
    Result result = Ended(writes_ == Writes::kInPlace ? Outcome::kDamaged : Outcome::kUnchanged,
                          std::move(status));
    result.quarantine = 1;
    return result;
  }

  Link& link_;
  const Writes writes_;
  const bool retry_;
  const absl::Time deadline_;
  const absl::Duration settle_;
  const IdempotencyKey key_ = NewKey();
  uint32_t slot_ = 0;
  Message message_;
  Response response_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_WRITING_CALL_H_
