// The deadline rules of calls.
#ifndef KVTRIAGE_SERVICE_RPC_DEADLINE_H_
#define KVTRIAGE_SERVICE_RPC_DEADLINE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvtriage {

// `wanted` is the client's deadline, infinite for none: that means `usual` from now. More than 120
// s from now: DEADLINE_TOO_LONG, since a call that may hang for longer is a mistake of its caller.
absl::StatusOr<absl::Time> DeadlineOf(absl::Time now, absl::Time wanted, absl::Duration usual);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_DEADLINE_H_
