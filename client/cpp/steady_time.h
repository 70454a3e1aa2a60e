// Deadlines of calls are wall-clock times, as gRPC has them; waits run on the steady clock.
#ifndef KVTRIAGE_CLIENT_CPP_STEADY_TIME_H_
#define KVTRIAGE_CLIENT_CPP_STEADY_TIME_H_

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kvtriage::client {

// The same moment, at most an hour from now.
inline std::chrono::steady_clock::time_point SteadyTime(absl::Time time) {
  const absl::Duration left = std::min(time - absl::Now(), absl::Hours(1));
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left);
}

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_STEADY_TIME_H_
