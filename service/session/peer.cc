#include "service/session/peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kvtriage {
namespace {

constexpr int kSoPeerPidfd = 77;              // SO_PEERPIDFD; older headers lack the name
constexpr uint64_t kPidfsMagic = 0x50494446;  // PID_FS_MAGIC

std::vector<gid_t> ReadPeerGroups(int socket) {
  std::vector<gid_t> groups(64);
  while (true) {
    socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    if (errno != ERANGE || bytes <= groups.size() * sizeof(gid_t)) return {};
    groups.resize(bytes / sizeof(gid_t));
  }
}

template <typename T>
bool Contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool HasHungUp(int socket) {
  pollfd poll_entry{socket, 0, 0};
  return ::poll(&poll_entry, 1, 0) > 0 && (poll_entry.revents & POLLHUP) != 0;
}

}  // namespace

std::optional<PeerCredentials> ReadPeer(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  return PeerCredentials{{credentials.uid, credentials.gid, credentials.pid},
                         ReadPeerGroups(socket)};
}

PeerRule PeerRule::OwnProcess() {
  PeerRule rule;
  rule.uids = {::geteuid(), 0};
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  groups.push_back(::getegid());
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(rule.gids),
               [](gid_t gid) { return gid != 0; });
  return rule;
}

bool PeerRule::Allows(const PeerCredentials& peer) const {
  return Contains(uids, peer.process.uid) || Contains(gids, peer.process.gid) ||
         std::any_of(peer.groups.begin(), peer.groups.end(),
                     [this](gid_t gid) { return Contains(gids, gid); });
}

PeerPidfd OpenPeerPidfd(int socket, const PeerProcess& peer) {
  PeerPidfd out;
  int fd = -1;
  socklen_t bytes = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &bytes) == 0) {
    out.fd.reset(fd);
    return out;
  }
  if (errno != ENOPROTOOPT) {  // the kernel knows the option and finds no such process
    out.gone = errno == ESRCH || errno == EINVAL || errno == ENODATA;
    return out;
  }
  if (peer.pid == 0) return out;
  out.fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  out.gone = (!out.fd.valid() && errno == ESRCH) || HasHungUp(socket);
  return out;
}

uint64_t ProcessNumber(int pidfd) {
  struct statfs system;
  struct stat file;
  if (pidfd < 0 || ::fstatfs(pidfd, &system) != 0 || ::fstat(pidfd, &file) != 0) return 0;
  return static_cast<uint64_t>(system.f_type) == kPidfsMagic ? file.st_ino : 0;
}

}  // namespace kvtriage
