// One packet with its descriptors, received and sent. Never blocks, never raises SIGPIPE.
#ifndef KVTRIAGE_SERVICE_SESSION_FD_MESSAGE_H_
#define KVTRIAGE_SERVICE_SESSION_FD_MESSAGE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "service/memory/unique_fd.h"

namespace kvtriage {

enum class Received {
  kPacket,
  kNothing,  // try again later
  kClosed,   // the peer has gone (or sent an empty packet, which looks the same)
  kBroken,   // longer than a packet may be, or with more descriptors than there may be
};

struct FdMessage {
  Received result = Received::kNothing;
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;  // all that came, whatever the result; close-on-exec
};

FdMessage ReceiveFdMessage(int socket);

// False when the packet was not sent: the peer has gone, or does not read what it is sent.
bool SendFdMessage(int socket, std::span<const std::byte> packet, int fd = -1);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_FD_MESSAGE_H_
