// Accepts connections of a Unix socket on the doorkeeper's thread and lets in whom the rule allows;
// others are closed without a byte.
#ifndef KVTRIAGE_SERVICE_SESSION_PEER_ACCEPTOR_H_
#define KVTRIAGE_SERVICE_SESSION_PEER_ACCEPTOR_H_

#include <functional>
#include <memory>

#include "service/session/doorkeeper.h"
#include "service/session/peer.h"
#include "service/session/unix_listener.h"

namespace kvtriage {

class PeerAcceptor {
 public:
  struct Callbacks {                                             // doorkeeper's thread
    std::function<void(UniqueFd, const PeerProcess&)> accepted;  // non-blocking, close-on-exec
    std::function<void(const PeerProcess&)> refused;             // may be empty
  };

  // Accepts from now on. `doorkeeper` outlives it.
  PeerAcceptor(UnixListener listener, PeerRule rule, Doorkeeper& doorkeeper, Callbacks callbacks);
  ~PeerAcceptor();  // no callback runs afterwards; removes the socket

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_PEER_ACCEPTOR_H_
