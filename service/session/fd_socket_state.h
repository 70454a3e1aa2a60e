// Inside FdSocket. Only its own sources include this.
#ifndef KVTRIAGE_SERVICE_SESSION_FD_SOCKET_STATE_H_
#define KVTRIAGE_SERVICE_SESSION_FD_SOCKET_STATE_H_

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/wire/fd_packet.h"
#include "service/session/bad_token_guard.h"
#include "service/session/fd_socket.h"
#include "service/session/peer_acceptor.h"

namespace kvtriage {

// Everything but `count` is touched on the doorkeeper's thread only.
struct FdSocket::State : std::enable_shared_from_this<FdSocket::State> {
  struct Connection {
    UniqueFd socket;
    PeerProcess peer;
    BadTokenGuard::Time since;
    bool greeted = false;            // HELLO was accepted
    std::weak_ptr<Session> session;  // of the last HELLO; nobody lives longer because of a socket

    std::shared_ptr<Session> LiveSession() const {
      std::shared_ptr<Session> live = session.lock();
      return live != nullptr && !live->ended() ? live : nullptr;
    }
  };

  State(uint64_t epoch, const FdSocketLimits& limits, Doorkeeper& doorkeeper,
        SessionTable& sessions, Mapper& mapper, OnEvent on_event)
      : epoch(epoch),
        limits(limits),
        doorkeeper(doorkeeper),
        sessions(sessions),
        mapper(mapper),
        on_event(std::move(on_event)),
        guard(limits.bad_tokens, std::chrono::milliseconds(limits.bad_token_window_ms)) {}

  // fd_socket.cc: connections come and go.
  void OnAccepted(UniqueFd socket, const PeerProcess& peer);
  bool MakeRoom();
  void Close(uint64_t id);
  void CloseAll();
  void SweepLater();
  void Sweep();
  void Tell(FdSocketEvent event, const PeerProcess& peer) const {
    if (on_event != nullptr) on_event(event, peer);
  }

  // fd_requests.cc: what they say.
  void OnReadable(uint64_t id);
  void OnHello(uint64_t id, const wire::FdHello& hello);
  void OnOffer(uint64_t id, const wire::FdOffer& offer, std::vector<UniqueFd> fds);
  absl::StatusOr<std::vector<uint64_t>> TakeOffer(Session& session, const wire::FdOffer& offer,
                                                  std::vector<UniqueFd>& fds, uint32_t& index);
  template <typename T>
  void Send(uint64_t id, const T& packet, int fd = -1);
  void Refuse(uint64_t id, const wire::FdRefused& packet);

  const uint64_t epoch;
  const FdSocketLimits limits;
  Doorkeeper& doorkeeper;
  SessionTable& sessions;
  Mapper& mapper;
  const OnEvent on_event;
  BadTokenGuard guard;
  std::map<uint64_t, Connection> open;  // by number, so the oldest comes first
  uint64_t next_id = 1;
  bool sweeping = false;  // a sweep is due
  bool told_no_pidfd = false;
  std::atomic<uint32_t> count{0};
  std::optional<PeerAcceptor> acceptor;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_FD_SOCKET_STATE_H_
