// What became of a writing call that did not answer OK? The rules of the crash contract, apart from
// any socket: they are the part that must not be wrong.
#ifndef KVTRIAGE_CLIENT_CPP_SETTLE_H_
#define KVTRIAGE_CLIENT_CPP_SETTLE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kvtriage::client {

enum class Verdict {
  kAnswered,   // `resolve` got the stored answer: applied
  kUnharmed,   // nothing happened, and nothing will
  kReadSlot,   // the slot is CLOSED: it says what happened
  kReadQuiet,  // the service is gone or has closed the session: what the slot says is final
  kUnknown,    // not settled in time: assume the worst, and that it may still be written
};

struct SettleSources {
  // Asks the service what became of the key; returns its status.
  std::function<absl::Status(absl::Time deadline)> resolve;
  // The session's stream is over.
  std::function<bool()> lost;
  // Waits about a millisecond; true when nothing of this session will be stored any more.
  std::function<bool()> quiet;
};

Verdict Settle(const absl::Status& error, const SettleSources& sources, absl::Time deadline);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_SETTLE_H_
