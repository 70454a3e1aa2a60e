// One Observe or Rewind over one link, to its settled end.
#ifndef KVTRIAGE_CLIENT_CPP_OBSERVE_CALL_H_
#define KVTRIAGE_CLIENT_CPP_OBSERVE_CALL_H_

#include "absl/status/statusor.h"
#include "client/cpp/link.h"
#include "kvtriage/observe.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// `cache` describes request.cache. A `quarantine` in the result is 1: the session makes it a
// ticket.
ObserveOutcome RunObserve(Link& link, const CacheSpec& cache, const ObserveRequest& request,
                          const CallOptions& options, absl::Duration settle);

// An error: nothing was forgotten, or the session, and with it the running scores, is gone.
absl::StatusOr<RewindResult> RunRewind(Link& link, const RewindRequest& request,
                                       const CallOptions& options, absl::Duration settle);

// An outcome without effect: nothing was sent, or the service refused.
ObserveOutcome WithoutEffect(const ObserveRequest& request, Outcome outcome, absl::Status status);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_OBSERVE_CALL_H_
