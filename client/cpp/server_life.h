// Whether the service's process is really gone. Only then is it certain that no store of its comes
// any more: a reset connection says nothing about a process that still runs.
#ifndef KVTRIAGE_CLIENT_CPP_SERVER_LIFE_H_
#define KVTRIAGE_CLIENT_CPP_SERVER_LIFE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "client/cpp/owned_fd.h"

namespace kvtriage::client {

class ServerLife {
 public:
  // Of the process at the other end of `socket` (SO_PEERPIDFD, else pidfd_open of its pid). On
  // kernels with neither, a hung-up socket counts as the end. `socket` outlives this object.
  explicit ServerLife(int socket);

  bool Gone() const { return WaitGone(0); }
  // True as soon as it is gone, false after `timeout_ms`.
  bool WaitGone(uint64_t timeout_ms) const;

 private:
  OwnedFd pidfd_;
  int socket_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_SERVER_LIFE_H_
