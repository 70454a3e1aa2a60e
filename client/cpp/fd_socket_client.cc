#include "client/cpp/fd_socket_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "client/cpp/local_error.h"
#include "kernels/core/status_macros.h"
#include "proto/wire/fd_packet.h"

namespace kvtriage::client {
namespace {

using Code = absl::StatusCode;

absl::Status SystemError(Code code, std::string_view reason, const std::string& what) {
  return LocalError(code, reason, what + ": " + std::generic_category().message(errno));
}

absl::Status Protocol(const char* what) {
  return LocalError(Code::kUnavailable, "not_kvtriage", std::string("fd socket: ") + what);
}

wire::FdHeader Header(wire::FdPacketType type, size_t bytes) {
  wire::FdHeader header{};
  std::memcpy(header.magic, wire::kFdMagic, sizeof(header.magic));
  header.version = wire::kFdVersion;
  header.type = static_cast<uint16_t>(type);
  header.length = static_cast<uint32_t>(bytes);
  return header;
}

struct Packet {
  alignas(8) unsigned char bytes[wire::kFdMaxPacket];
  size_t size = 0;
  std::vector<OwnedFd> fds;

  wire::FdPacketType type() const {
    wire::FdHeader header;
    std::memcpy(&header, bytes, sizeof(header));
    return static_cast<wire::FdPacketType>(header.type);
  }
  template <typename T>
  T As() const {
    T packet;
    std::memcpy(&packet, bytes, sizeof(packet));
    return packet;
  }
};

void TakeDescriptors(msghdr& message, std::vector<OwnedFd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
}

absl::Status Receive(int socket, Packet& packet) {
  iovec data{packet.bytes, sizeof(packet.bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(wire::kFdMaxDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return SystemError(Code::kUnavailable, "fd_socket_silent", "fd socket: no answer");
  if (got == 0)
    return LocalError(Code::kUnavailable, "fd_socket_denied", "fd socket: closed by the service");
  TakeDescriptors(message, packet.fds);
  packet.size = static_cast<size_t>(got);
  const auto header =
      packet.size >= sizeof(wire::FdHeader) ? packet.As<wire::FdHeader>() : wire::FdHeader{};
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      std::memcmp(header.magic, wire::kFdMagic, sizeof(header.magic)) != 0 ||
      header.version != wire::kFdVersion || header.length != packet.size || header.zero != 0) {
    return Protocol("malformed packet");
  }
  return absl::OkStatus();
}

// The refusal in `packet`, or a protocol error when it is of another wrong kind.
absl::Status Refusal(const Packet& packet) {
  if (packet.type() != wire::FdPacketType::kRefused || packet.size != sizeof(wire::FdRefused)) {
    return Protocol("unexpected packet");
  }
  const auto refused = packet.As<wire::FdRefused>();
  return ServiceRefusal(refused.reason, refused.index, "refused on the fd socket");
}

}  // namespace

absl::StatusOr<FdSocketClient> FdSocketClient::Connect(const std::string& path,
                                                       std::optional<uid_t> server_uid,
                                                       uint64_t timeout_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return LocalError(Code::kInvalidArgument, "bad_argument",
                      "path of the fd socket is too long: " + path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  OwnedFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid())
    return SystemError(Code::kResourceExhausted, "fd_socket_missing", "making a socket");
  const timeval limit{static_cast<time_t>(timeout_ms / 1000),
                      static_cast<suseconds_t>(timeout_ms % 1000 * 1000)};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const bool denied = errno == EACCES || errno == EPERM;
    return SystemError(denied ? Code::kPermissionDenied : Code::kUnavailable,
                       denied ? "fd_socket_denied" : "fd_socket_missing", "connecting to " + path);
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError(Code::kPermissionDenied, "server_untrusted",
                       "reading who listens at " + path);
  }
  if (peer.uid != 0 && peer.uid != geteuid() && peer.uid != server_uid) {
    return LocalError(Code::kPermissionDenied, "server_untrusted",
                      "uid " + std::to_string(peer.uid) + " listens at " + path +
                          ": not ours, not root, not the configured one");
  }
  return FdSocketClient(std::move(socket), ServerProcess{peer.pid, peer.uid, peer.gid});
}

absl::Status FdSocketClient::Send(const void* packet, size_t bytes, std::span<const int> fds) {
  iovec data{const_cast<void*>(packet), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(wire::kFdMaxDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(bytes)) {
    return SystemError(Code::kUnavailable, "fd_socket_denied", "sending on the fd socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<BoundLedger> FdSocketClient::Hello(std::string_view token) {
  wire::FdHello hello{};
  hello.header = Header(wire::FdPacketType::kHello, sizeof(hello));
  if (token.size() != sizeof(hello.token)) return Protocol("the session token has another size");
  std::memcpy(hello.token, token.data(), token.size());
  KVTRIAGE_RETURN_IF_ERROR(Send(&hello, sizeof(hello), {}));
  Packet packet;
  KVTRIAGE_RETURN_IF_ERROR(Receive(socket_.get(), packet));
  if (packet.type() != wire::FdPacketType::kBound) return Refusal(packet);
  if (packet.size != sizeof(wire::FdBound) || packet.fds.size() != 1)
    return Protocol("malformed BOUND");
  const auto bound = packet.As<wire::FdBound>();
  return BoundLedger{std::move(packet.fds.front()), bound.epoch, bound.ledger_bytes,
                     bound.ledger_slots};
}

absl::StatusOr<std::vector<uint64_t>> FdSocketClient::Offer(std::span<const int> fds) {
  std::vector<uint64_t> tickets;
  while (!fds.empty()) {
    const auto part = fds.first(std::min(fds.size(), wire::kFdMaxDescriptors));
    KVTRIAGE_RETURN_IF_ERROR(OfferPacket(part, tickets));
    fds = fds.subspan(part.size());
  }
  return tickets;
}

absl::Status FdSocketClient::OfferPacket(std::span<const int> fds, std::vector<uint64_t>& tickets) {
  wire::FdOffer offer{};
  offer.header = Header(wire::FdPacketType::kOffer, sizeof(offer));
  offer.tag = next_tag_++;
  offer.count = static_cast<uint32_t>(fds.size());
  std::fill_n(offer.kind, fds.size(), static_cast<uint32_t>(wire::FdKind::kMemfd));
  KVTRIAGE_RETURN_IF_ERROR(Send(&offer, sizeof(offer), fds));
  Packet packet;
  KVTRIAGE_RETURN_IF_ERROR(Receive(socket_.get(), packet));
  if (packet.type() != wire::FdPacketType::kTickets) return Refusal(packet);
  const auto answer = packet.As<wire::FdTickets>();
  if (packet.size != sizeof(answer) || !packet.fds.empty() || answer.tag != offer.tag ||
      answer.count != offer.count) {
    return Protocol("malformed TICKETS");
  }
  tickets.insert(tickets.end(), answer.ticket, answer.ticket + answer.count);
  return absl::OkStatus();
}

}  // namespace kvtriage::client
