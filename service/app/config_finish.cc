#include <sys/types.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "service/app/config_keys.h"
#include "service/app/config_values.h"

namespace kvtriage {
namespace {

std::string_view DirectoryOf(std::string_view path) { return path.substr(0, path.rfind('/') + 1); }

// ".../kvtriage.sock" -> ".../kvtriage-fd.sock".
std::string FdSocketBeside(std::string_view uds) {
  constexpr std::string_view kSuffix = ".sock";
  if (uds.ends_with(kSuffix)) uds.remove_suffix(kSuffix.size());
  return absl::StrCat(std::string(uds), "-fd.sock");
}

std::vector<uint32_t> OwnGroups() {
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  groups.push_back(getegid());
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  std::erase(groups, 0u);  // the root group often holds everything in a container
  return {groups.begin(), groups.end()};
}

absl::Status KeyError(std::string_view key, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("key '", std::string(key), "': ", std::string(what)));
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
  if (!config.uids_given) {
    config.allowed_uids = {geteuid()};
    if (geteuid() != 0) config.allowed_uids.push_back(0);
  }
  if (!config.gids_given) config.allowed_gids = OwnGroups();
  if (config.limits.max_bound_sessions > config.limits.max_sessions) {
    return KeyError("session.max_bound", "is more than session.max");
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
