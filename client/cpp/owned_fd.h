// A file descriptor that closes itself. (The service has its own; the two share no code but the
// wire.)
#ifndef KVTRIAGE_CLIENT_CPP_OWNED_FD_H_
#define KVTRIAGE_CLIENT_CPP_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace kvtriage::client {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_OWNED_FD_H_
