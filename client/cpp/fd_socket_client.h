// The client's end of the fd socket: binds the session to this process, receives the ledger, hands
// descriptors over. Packets: proto/wire/fd_packet.h.
#ifndef KVTRIAGE_CLIENT_CPP_FD_SOCKET_CLIENT_H_
#define KVTRIAGE_CLIENT_CPP_FD_SOCKET_CLIENT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/owned_fd.h"

namespace kvtriage::client {

struct ServerProcess {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct BoundLedger {
  OwnedFd fd;
  uint64_t epoch = 0;
  uint32_t bytes = 0;
  uint32_t slots = 0;
};

// Not thread-safe. Every call waits at most `timeout_ms`.
class FdSocketClient {
 public:
  // Connects and checks who listens: uid 0, our own, or `server_uid`; descriptors go to nobody
  // else. PERMISSION_DENIED (fd_socket_denied, server_untrusted), UNAVAILABLE (fd_socket_missing).
  static absl::StatusOr<FdSocketClient> Connect(const std::string& path,
                                                std::optional<uid_t> server_uid,
                                                uint64_t timeout_ms);

  absl::StatusOr<BoundLedger> Hello(std::string_view token);
  // One ticket per descriptor, in order; all or nothing. Sends packets of at most 8.
  absl::StatusOr<std::vector<uint64_t>> Offer(std::span<const int> fds);

  int socket() const { return socket_.get(); }
  const ServerProcess& server() const { return server_; }

 private:
  FdSocketClient(OwnedFd socket, const ServerProcess& server)
      : socket_(std::move(socket)), server_(server) {}
  absl::Status Send(const void* packet, size_t bytes, std::span<const int> fds);
  absl::Status OfferPacket(std::span<const int> fds, std::vector<uint64_t>& tickets);

  OwnedFd socket_;
  ServerProcess server_;
  uint64_t next_tag_ = 1;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_FD_SOCKET_CLIENT_H_
