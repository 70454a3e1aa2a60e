#include "client/cpp/server_life.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>

namespace kvtriage::client {
namespace {

constexpr int kSoPeerPidFd = 77;  // SO_PEERPIDFD, Linux 6.5; Debian 12's headers do not have it

OwnedFd PeerPidFd(int socket) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidFd, &fd, &size) == 0) return OwnedFd(fd);
  ucred peer{};
  size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid == 0)
    return OwnedFd();
  OwnedFd by_pid(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  // The pid may have passed to another process in between: only then is the socket hung up by now.
  pollfd still_there{socket, POLLRDHUP, 0};
  if (poll(&still_there, 1, 0) != 0) return OwnedFd();
  return by_pid;
}

}  // namespace

ServerLife::ServerLife(int socket) : pidfd_(PeerPidFd(socket)), socket_(socket) {}

bool ServerLife::WaitGone(uint64_t timeout_ms) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    pollfd watched{pidfd_.valid() ? pidfd_.get() : socket_,
                   static_cast<short>(pidfd_.valid() ? POLLIN : POLLRDHUP), 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    const int wait =
        static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
    const int ready = poll(&watched, 1, wait);
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= end) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace kvtriage::client
