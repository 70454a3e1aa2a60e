// The server's side of the fd socket: HELLO binds a session to its process and hands out its
// ledger, OFFER turns memfds into tickets. Everything runs on the doorkeeper's thread.
#ifndef KVTRIAGE_SERVICE_SESSION_FD_SOCKET_H_
#define KVTRIAGE_SERVICE_SESSION_FD_SOCKET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "service/memory/mapper.h"
#include "service/session/doorkeeper.h"
#include "service/session/peer.h"
#include "service/session/session_table.h"
#include "service/session/unix_listener.h"

namespace kvtriage {

struct FdSocketLimits {
  uint32_t max_connections = 64;
  uint32_t hello_ms = 5000;  // from accept to HELLO
  uint32_t bad_tokens =
      20;  // of one uid within the window, then it is not listened to for a window
  uint32_t bad_token_window_ms = 10000;
  uint32_t sweep_ms = 500;  // how often late, ended and expired things are looked for
};

enum class FdSocketEvent : uint8_t {
  kPeerRefused,      // not an allowed uid or group
  kConnectionLimit,  // no room: the new connection, or an older one without a session, was closed
  kUidBlocked,       // closed unread after too many bad tokens
  kHelloLate,
  kMalformed,
  kBadToken,
  kNoPidfd,  // once: this system cannot report a peer's death; the stream alone is the lease
};
std::string_view FdSocketEventName(FdSocketEvent event);  // "peer_refused", ...

class FdSocket {
 public:
  // Doorkeeper's thread; must not block.
  using OnEvent = std::function<void(FdSocketEvent, const PeerProcess&)>;

  // Serves from now on. `listener` is a SOCK_SEQPACKET one. All references outlive it.
  FdSocket(UnixListener listener, uint64_t epoch, PeerRule rule, const FdSocketLimits& limits,
           Doorkeeper& doorkeeper, SessionTable& sessions, Mapper& mapper, OnEvent on_event);
  ~FdSocket();  // closes every connection; sessions stay

  uint32_t connections() const;  // any thread

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_FD_SOCKET_H_
