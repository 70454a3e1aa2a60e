#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "service/app/config_keys.h"
#include "service/app/config_values.h"
#include "service/session/peer.h"

namespace kvtriage {
namespace {

std::string_view DirectoryOf(std::string_view path) { return path.substr(0, path.rfind('/') + 1); }

// ".../kvtriage.sock" -> ".../kvtriage-fd.sock".
std::string FdSocketBeside(std::string_view uds) {
  constexpr std::string_view kSuffix = ".sock";
  if (uds.ends_with(kSuffix)) uds.remove_suffix(kSuffix.size());
  return absl::StrCat(std::string(uds), "-fd.sock");
}

std::vector<uint32_t> Sorted(std::vector<uint32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

absl::Status KeyError(std::string_view key, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("key '", std::string(key), "': ", std::string(what)));
}

absl::Status CheckDefaultPolicy(const PolicyDefaults& policy) {
  const std::vector<std::string> names = KnownNames(policy);
  if (policy.name.empty() || std::count(names.begin(), names.end(), policy.name) > 0) {
    return absl::OkStatus();
  }
  return KeyError("policy.default", absl::StrCat("expected one of ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::Status FinishConfig(Config& config) {
  if (config.fd_uds.empty()) {
    const absl::StatusOr<std::string> path = ParseSocketPath(FdSocketBeside(config.uds));
    if (!path.ok()) return KeyError("listen.uds", "leaves no room for the name of the fd socket");
    config.fd_uds = *path;
  }
  if (DirectoryOf(config.fd_uds) != DirectoryOf(config.uds)) {
    return KeyError("listen.fd_uds", "must be in the directory of listen.uds");
  }
  if (config.fd_uds == config.uds) return KeyError("listen.fd_uds", "is the same as listen.uds");
  const PeerRule own = PeerRule::OwnProcess();
  if (!config.uids_given) config.allowed_uids = Sorted({own.uids.begin(), own.uids.end()});
  if (!config.gids_given) config.allowed_gids = Sorted({own.gids.begin(), own.gids.end()});
  if (config.limits.max_bound_sessions > config.limits.max_sessions) {
    return KeyError("session.max_bound", "is more than session.max");
  }
  return CheckDefaultPolicy(config.policy);
}

}  // namespace kvtriage
