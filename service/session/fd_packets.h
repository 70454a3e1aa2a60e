// What a client may say on the fd socket: pure checks of one packet (proto/wire/fd_packet.h).
#ifndef KVTRIAGE_SERVICE_SESSION_FD_PACKETS_H_
#define KVTRIAGE_SERVICE_SESSION_FD_PACKETS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <variant>

#include "proto/wire/fd_packet.h"

namespace kvtriage {

using FdRequest = std::variant<wire::FdHello, wire::FdOffer>;

// The packet, if it is one of the two that clients send, whole, with all reserved fields zero and
// with as many descriptors as it says (HELLO: none; OFFER: `count`, 1 to 8). Kinds are not judged.
std::optional<FdRequest> ParseFdRequest(std::span<const std::byte> packet, size_t descriptors);

// The header of a packet of type T to send.
template <typename T>
wire::FdHeader MakeFdHeader(wire::FdPacketType type) {
  return {{wire::kFdMagic[0], wire::kFdMagic[1], wire::kFdMagic[2], wire::kFdMagic[3]},
          wire::kFdVersion,
          static_cast<uint16_t>(type),
          sizeof(T),
          0};
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_FD_PACKETS_H_
