// Whether this process may open as many descriptors as its limits promise.
#ifndef KVTRIAGE_SERVICE_APP_DESCRIPTOR_BUDGET_H_
#define KVTRIAGE_SERVICE_APP_DESCRIPTOR_BUDGET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "service/validate/limits.h"

namespace kvtriage {

// Two per bound session (ledger, pidfd), one per connection, the descriptors of the fd socket's
// packets, and a reserve for sockets, epoll, logs and libraries.
uint64_t DescriptorsNeeded(const Limits& limits);

// Raises our soft limit to the hard one. Unavailable, naming both numbers, when that is not enough.
absl::Status CheckDescriptorBudget(const Limits& limits);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_DESCRIPTOR_BUDGET_H_
