#include "service/app/connection_count.h"

#include <sys/stat.h>

namespace kvtriage {
namespace {

// 0 when the descriptor is not open.
ino_t InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

bool ConnectionCount::Admit(int fd) {
  std::erase_if(connections_, [](const Connection& connection) {
    return InodeOf(connection.fd) != connection.inode;
  });
  if (connections_.size() >= limit_) return false;
  connections_.push_back({fd, InodeOf(fd)});
  return true;
}

}  // namespace kvtriage
