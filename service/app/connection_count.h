// Counts the connections that were handed to gRPC, which does not tell when it closes one.
#ifndef KVTRIAGE_SERVICE_APP_CONNECTION_COUNT_H_
#define KVTRIAGE_SERVICE_APP_CONNECTION_COUNT_H_

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace kvtriage {

// Not thread-safe. A connection is known by its descriptor's number and its socket's inode: once it
// is closed, the number is free or means another inode.
class ConnectionCount {
 public:
  explicit ConnectionCount(size_t limit) : limit_(limit) {}

  // Whether there is room for the connected socket `fd`; then it counts until somebody closes it.
  bool Admit(int fd);

 private:
  struct Connection {
    int fd;
    ino_t inode;
  };
  const size_t limit_;
  std::vector<Connection> connections_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CONNECTION_COUNT_H_
