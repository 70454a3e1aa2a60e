#include "service/session/fd_packets.h"

#include <bit>
#include <cstring>

namespace kvtriage {
namespace {

static_assert(std::endian::native == std::endian::little, "packets are copied as they are");

template <typename T>
std::optional<T> Read(std::span<const std::byte> packet) {
  if (packet.size() != sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, packet.data(), sizeof(T));
  return out;
}

bool HeaderFits(const wire::FdHeader& header, size_t bytes) {
  return std::memcmp(header.magic, wire::kFdMagic, sizeof(header.magic)) == 0 &&
         header.version == wire::kFdVersion && header.length == bytes && header.zero == 0;
}

bool OfferFits(const wire::FdOffer& offer, size_t descriptors) {
  if (offer.count == 0 || offer.count > wire::kFdMaxDescriptors || offer.zero != 0) return false;
  for (size_t i = offer.count; i < wire::kFdMaxDescriptors; ++i) {
    if (offer.kind[i] != 0) return false;
  }
  return offer.count == descriptors;
}

}  // namespace

std::optional<FdRequest> ParseFdRequest(std::span<const std::byte> packet, size_t descriptors) {
  if (packet.size() < sizeof(wire::FdHeader)) return std::nullopt;
  const wire::FdHeader header = *Read<wire::FdHeader>(packet.first(sizeof(wire::FdHeader)));
  if (!HeaderFits(header, packet.size())) return std::nullopt;
  switch (static_cast<wire::FdPacketType>(header.type)) {
    case wire::FdPacketType::kHello:
      if (const auto hello = Read<wire::FdHello>(packet); hello && descriptors == 0) return *hello;
      return std::nullopt;
    case wire::FdPacketType::kOffer:
      if (const auto offer = Read<wire::FdOffer>(packet); offer && OfferFits(*offer, descriptors)) {
        return *offer;
      }
      return std::nullopt;
    default:  // what only the server says, and what nobody says
      return std::nullopt;
  }
}

}  // namespace kvtriage
