#include "service/session/fd_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "proto/wire/fd_packet.h"

namespace kvtriage {
namespace {

// Room for exactly so many: the kernel closes surplus descriptors itself and says so.
constexpr size_t kControlBytes = CMSG_SPACE(wire::kFdMaxDescriptors * sizeof(int));
static_assert(kControlBytes == CMSG_LEN(wire::kFdMaxDescriptors * sizeof(int)),
              "padding would let one more descriptor in");

void TakeDescriptors(msghdr& header, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

FdMessage ReceiveFdMessage(int socket) {
  FdMessage message;
  message.bytes.resize(wire::kFdMaxPacket);
  alignas(cmsghdr) std::byte control[kControlBytes];
  iovec part{message.bytes.data(), message.bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    message.result = again ? Received::kNothing : Received::kClosed;
    return message;
  }
  TakeDescriptors(header, message.fds);
  message.bytes.resize(static_cast<size_t>(got));
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    message.result = Received::kBroken;
  } else {
    message.result = got == 0 ? Received::kClosed : Received::kPacket;
  }
  return message;
}

bool SendFdMessage(int socket, std::span<const std::byte> packet, int fd) {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

}  // namespace kvtriage
