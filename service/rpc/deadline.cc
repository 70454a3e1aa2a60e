#include "service/rpc/deadline.h"

#include "kernels/core/error.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {
// gRPC rounds a timeout up when it puts it on the wire.
constexpr absl::Duration kRounding = absl::Seconds(1);
}  // namespace

absl::StatusOr<absl::Time> DeadlineOf(absl::Time now, absl::Time wanted, absl::Duration usual) {
  if (wanted == absl::InfiniteFuture()) return now + usual;
  if (wanted - now > absl::Milliseconds(kMaxDeadlineMs) + kRounding) {
    return Error(ErrorReason::kDeadlineTooLong, "deadline", "the deadline is too far away, in ms")
        .Got(static_cast<uint64_t>(absl::ToInt64Milliseconds(wanted - now)))
        .Limit(kMaxDeadlineMs);
  }
  return wanted;
}

}  // namespace kvtriage
