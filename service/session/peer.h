// Who is at the other end of a Unix socket, and whether he may talk to us.
#ifndef KVTRIAGE_SERVICE_SESSION_PEER_H_
#define KVTRIAGE_SERVICE_SESSION_PEER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "service/memory/unique_fd.h"

namespace kvtriage {

// A connected process, as the kernel noted it when it connected.
struct PeerProcess {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0 when it lives in a PID namespace that we cannot see
};

struct PeerCredentials {
  PeerProcess process;
  std::vector<gid_t> groups;  // supplementary ones
};

// Nothing when the socket does not say.
std::optional<PeerCredentials> ReadPeer(int socket);

// A peer passes when its uid is listed or one of its groups is.
struct PeerRule {
  std::vector<uid_t> uids;
  std::vector<gid_t> gids;

  // Our own uid and root; our own groups, but never group 0.
  static PeerRule OwnProcess();
  bool Allows(const PeerCredentials& peer) const;
};

// The peer's pidfd: from the socket (Linux 6.5), or opened by its pid and then checked against the
// socket, because a pid may have been given to another process meanwhile.
struct PeerPidfd {
  UniqueFd fd;        // invalid: this system cannot tell
  bool gone = false;  // the peer is dead already
};
PeerPidfd OpenPeerPidfd(int socket, const PeerProcess& peer);

// A number that no other process has while this one lives and after; 0 when the kernel gives pidfds
// no numbers of their own (before 6.9) or the pidfd is invalid.
uint64_t ProcessNumber(int pidfd);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_PEER_H_
