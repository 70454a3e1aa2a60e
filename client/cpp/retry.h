// Repeats a call that was refused for load.
#ifndef KVTRIAGE_CLIENT_CPP_RETRY_H_
#define KVTRIAGE_CLIENT_CPP_RETRY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/local_error.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

inline constexpr int kMaxRetries = 3;

// How long to wait before `status` may be tried again; nothing when it may not: only refusals that
// say UNHARMED and name a pause are safe and worth it.
inline std::optional<absl::Duration> RetryPause(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) && !absl::IsUnavailable(status)) return std::nullopt;
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value() || !details->from_service || !details->unharmed) return std::nullopt;
  if (details->retry_after_ms == 0) return std::nullopt;
  return absl::Milliseconds(details->retry_after_ms);
}

// `call` makes one try and is the same call every time, its idempotency key included.
template <typename Call>
absl::Status WithRetry(bool retry, absl::Time deadline, const Call& call) {
  absl::Status status = call();
  for (int i = 0; retry && i < kMaxRetries && !status.ok(); ++i) {
    const std::optional<absl::Duration> pause = RetryPause(status);
    if (!pause.has_value() || absl::Now() + *pause >= deadline) break;
    absl::SleepFor(*pause);
    status = call();
  }
  return status;
}

inline absl::Time DeadlineOf(const CallOptions& options) {
  return absl::Now() + absl::Milliseconds(static_cast<int64_t>(options.deadline_ms));
}

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_RETRY_H_
