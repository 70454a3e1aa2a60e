#include "service/app/descriptor_budget.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"

namespace kvtriage {
namespace {
constexpr uint64_t kReserve = 256;
}  // namespace

uint64_t DescriptorsNeeded(const Limits& limits) {
  return 2 * uint64_t{limits.max_bound_sessions} + limits.max_connections + kMaxFdConnections +
         uint64_t{kMaxFdConnections} * kMaxFdsPerPacket + kReserve;
}

absl::Status CheckDescriptorBudget(const Limits& limits) {
  const uint64_t needed = DescriptorsNeeded(limits);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();  // then there is none to hit
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the limits need ", needed, " file descriptors, this process may open ", limit.rlim_cur,
      " (raise RLIMIT_NOFILE, or lower session.max_bound or rpc.max_connections)"));
}

}  // namespace kvtriage
