// Packets of the fd socket (AF_UNIX, SOCK_SEQPACKET), which carries what gRPC cannot: descriptors.
// Little-endian structs, at most 256 bytes. Service and client include this one file.
//
//   client                       server
//   HELLO token            -->
//                          <--   BOUND + 1 fd (the ledger), or REFUSED and close
//   OFFER + 1..8 fds       -->
//                          <--   TICKETS, or REFUSED (all or nothing)
#ifndef KVTRIAGE_PROTO_WIRE_FD_PACKET_H_
#define KVTRIAGE_PROTO_WIRE_FD_PACKET_H_

#include <cstddef>
#include <cstdint>

namespace kvtriage::wire {

inline constexpr char kFdMagic[4] = {'K', 'V', 'F', 'D'};
inline constexpr uint16_t kFdVersion = 1;
inline constexpr size_t kFdMaxPacket = 256;
inline constexpr size_t kFdMaxDescriptors = 8;
inline constexpr size_t kTokenBytes = 24;  // session id (8, little-endian) + secret (16)

enum class FdPacketType : uint16_t {
  kHello = 1,
  kBound = 2,
  kOffer = 3,
  kTickets = 4,
  kRefused = 5
};
enum class FdKind : uint32_t { kMemfd = 1 };  // 2 is a device allocation, not served yet

struct FdHeader {
  char magic[4];
  uint16_t version;
  uint16_t type;
  uint32_t length;  // of the whole packet
  uint32_t zero;
};
static_assert(sizeof(FdHeader) == 16);

struct FdHello {  // no descriptor
  FdHeader header;
  uint8_t token[kTokenBytes];
};
static_assert(sizeof(FdHello) == 40);

struct FdBound {  // 1 descriptor: the ledger, mappable for reading only
  FdHeader header;
  uint64_t epoch;
  uint32_t ledger_bytes;
  uint32_t ledger_slots;
};
static_assert(sizeof(FdBound) == 32);

struct FdOffer {  // `count` descriptors
  FdHeader header;
  uint64_t tag;  // the client's own number, echoed
  uint32_t count;
  uint32_t kind[kFdMaxDescriptors];
  uint32_t zero;
};
static_assert(sizeof(FdOffer) == 64);

struct FdTickets {  // no descriptor; a ticket works once, for this session, for 30 s
  FdHeader header;
  uint64_t tag;
  uint32_t count;
  uint32_t zero;
  uint64_t ticket[kFdMaxDescriptors];
};
static_assert(sizeof(FdTickets) == 96);

struct FdRefused {  // no descriptor
  FdHeader header;
  uint64_t tag;     // 0 for HELLO
  uint32_t reason;  // ErrorReason
  uint32_t index;   // of the descriptor
};
static_assert(sizeof(FdRefused) == 32);

}  // namespace kvtriage::wire

#endif  // KVTRIAGE_PROTO_WIRE_FD_PACKET_H_
