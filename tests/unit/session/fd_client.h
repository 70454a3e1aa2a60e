// The client's end of the fd socket, for tests: raw packets over a real connection.
#ifndef KVTRIAGE_TESTS_UNIT_SESSION_FD_CLIENT_H_
#define KVTRIAGE_TESTS_UNIT_SESSION_FD_CLIENT_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/wire/fd_packet.h"
#include "service/memory/unique_fd.h"
#include "service/session/fd_message.h"
#include "service/session/fd_packets.h"
#include "service/session/session.h"

namespace kvtriage {

inline UniqueFd ConnectTo(const std::string& path, int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return UniqueFd();
  }
  return socket;
}

inline wire::FdHello MakeHello(const SessionToken& token) {
  wire::FdHello hello{MakeFdHeader<wire::FdHello>(wire::FdPacketType::kHello), {}};
  std::copy(token.begin(), token.end(), hello.token);
  return hello;
}

inline wire::FdOffer MakeOffer(uint32_t count, uint64_t tag = 1) {
  wire::FdOffer offer{MakeFdHeader<wire::FdOffer>(wire::FdPacketType::kOffer), tag, count, {}, 0};
  for (uint32_t i = 0; i < count && i < wire::kFdMaxDescriptors; ++i) offer.kind[i] = 1;
  return offer;
}

class FdClient {
 public:
  explicit FdClient(const std::string& path) : socket_(ConnectTo(path, SOCK_SEQPACKET)) {}

  bool connected() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }

  bool SendRaw(std::span<const std::byte> bytes, const std::vector<int>& fds = {}) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    std::vector<std::byte> control(CMSG_SPACE(fds.size() * sizeof(int)));
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    return ::sendmsg(fd(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  template <typename T>
  bool Send(const T& packet, const std::vector<int>& fds = {}) {
    return SendRaw(std::as_bytes(std::span(&packet, 1)), fds);
  }

  // The next packet, or kClosed when the server closed; kNothing after `limit_ms`.
  FdMessage Receive(int limit_ms = 10'000) {
    pollfd entry{fd(), POLLIN, 0};
    if (::poll(&entry, 1, limit_ms) <= 0) return {};
    return ReceiveFdMessage(fd());
  }
  template <typename T>
  std::optional<T> ReceiveAs(wire::FdPacketType type) {
    const FdMessage message = Receive();
    if (message.result != Received::kPacket || message.bytes.size() != sizeof(T))
      return std::nullopt;
    T packet;
    std::memcpy(&packet, message.bytes.data(), sizeof(T));
    return packet.header.type == static_cast<uint16_t>(type) ? std::optional<T>(packet)
                                                             : std::nullopt;
  }
  bool ServerClosed(int limit_ms = 10'000) { return Receive(limit_ms).result == Received::kClosed; }

  // HELLO and its answer; the ledger's descriptor when it was BOUND.
  UniqueFd SayHello(const SessionToken& token) {
    if (!Send(MakeHello(token))) return UniqueFd();
    FdMessage message = Receive();
    if (message.bytes.size() != sizeof(wire::FdBound) || message.fds.size() != 1) return UniqueFd();
    return std::move(message.fds[0]);
  }
  // Tickets for `fds`; empty when refused.
  std::vector<uint64_t> Offer(const std::vector<int>& fds) {
    Send(MakeOffer(static_cast<uint32_t>(fds.size()), 42), fds);
    const auto tickets = ReceiveAs<wire::FdTickets>(wire::FdPacketType::kTickets);
    if (!tickets || tickets->tag != 42) return {};
    return {tickets->ticket, tickets->ticket + tickets->count};
  }

 private:
  UniqueFd socket_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_SESSION_FD_CLIENT_H_
