#include "service/session/fd_socket.h"

#include <sys/epoll.h>

#include <chrono>
#include <utility>
#include <vector>

#include "service/session/fd_socket_state.h"

namespace kvtriage {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::string_view FdSocketEventName(FdSocketEvent event) {
  switch (event) {
    case FdSocketEvent::kPeerRefused:
      return "peer_refused";
    case FdSocketEvent::kConnectionLimit:
      return "connection_limit";
    case FdSocketEvent::kUidBlocked:
      return "uid_blocked";
    case FdSocketEvent::kHelloLate:
      return "hello_late";
    case FdSocketEvent::kMalformed:
      return "malformed";
    case FdSocketEvent::kBadToken:
      return "bad_token";
    case FdSocketEvent::kNoPidfd:
      return "no_pidfd";
  }
  return "unknown";
}

void FdSocket::State::OnAccepted(UniqueFd socket, const PeerProcess& peer) {
  if (guard.Blocks(peer.uid, Clock::now())) return Tell(FdSocketEvent::kUidBlocked, peer);
  if (open.size() >= limits.max_connections && !MakeRoom()) {
    return Tell(FdSocketEvent::kConnectionLimit, peer);
  }
  const uint64_t id = next_id++;
  const int fd = socket.get();
  open[id] = {std::move(socket), peer, Clock::now()};
  count.store(static_cast<uint32_t>(open.size()), std::memory_order_relaxed);
  const bool watched = doorkeeper.Watch(fd, EPOLLIN, [weak = weak_from_this(), id](uint32_t) {
    if (const std::shared_ptr<State> self = weak.lock()) self->OnReadable(id);
  });
  if (!watched) return Close(id);
  if (!sweeping) SweepLater();
}

// A flood of connections that say nothing must not keep a worker out: the oldest of them goes.
bool FdSocket::State::MakeRoom() {
  for (const auto& [id, connection] : open) {
    if (connection.LiveSession() != nullptr) continue;
    Tell(FdSocketEvent::kConnectionLimit, connection.peer);
    Close(id);
    return true;
  }
  return false;
}

void FdSocket::State::Close(uint64_t id) {
  const auto node = open.extract(id);
  doorkeeper.Unwatch(node.mapped().socket.get());
  count.store(static_cast<uint32_t>(open.size()), std::memory_order_relaxed);
}

void FdSocket::State::CloseAll() {
  acceptor.reset();
  while (!open.empty()) Close(open.begin()->first);
}

void FdSocket::State::SweepLater() {
  sweeping = true;
  doorkeeper.After(limits.sweep_ms, [weak = weak_from_this()] {
    if (const std::shared_ptr<State> self = weak.lock()) self->Sweep();
  });
}

void FdSocket::State::Sweep() {
  sweeping = false;
  const Clock::time_point now = Clock::now();
  std::vector<uint64_t> over;
  for (const auto& [id, connection] : open) {
    if (const std::shared_ptr<Session> session = connection.LiveSession()) {
      session->memory().DropExpiredTickets();
    } else if (connection.greeted) {
      over.push_back(id);  // a child of a dead worker may hold its other end for ever
    } else if (now - connection.since >= std::chrono::milliseconds(limits.hello_ms)) {
      Tell(FdSocketEvent::kHelloLate, connection.peer);
      over.push_back(id);
    }
  }
  for (const uint64_t id : over) Close(id);
  if (!open.empty()) SweepLater();
}

FdSocket::FdSocket(UnixListener listener, uint64_t epoch, PeerRule rule,
                   const FdSocketLimits& limits, Doorkeeper& doorkeeper, SessionTable& sessions,
                   Mapper& mapper, OnEvent on_event)
    : state_(std::make_shared<State>(epoch, limits, doorkeeper, sessions, mapper,
                                     std::move(on_event))) {
  PeerAcceptor::Callbacks callbacks;
  callbacks.accepted = [weak = std::weak_ptr<State>(state_)](UniqueFd socket,
                                                             const PeerProcess& peer) {
    if (const std::shared_ptr<State> self = weak.lock()) self->OnAccepted(std::move(socket), peer);
  };
  callbacks.refused = [weak = std::weak_ptr<State>(state_)](const PeerProcess& peer) {
    if (const std::shared_ptr<State> self = weak.lock()) {
      self->Tell(FdSocketEvent::kPeerRefused, peer);
    }
  };
  state_->acceptor.emplace(std::move(listener), std::move(rule), doorkeeper, std::move(callbacks));
}

FdSocket::~FdSocket() {
  state_->doorkeeper.RunAndWait([state = state_.get()] { state->CloseAll(); });
}

uint32_t FdSocket::connections() const { return state_->count.load(std::memory_order_relaxed); }

}  // namespace kvtriage
