#include "service/session/peer_acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace kvtriage {
namespace {

// Few at a time, so that a flood of connections does not keep others from being read.
constexpr int kAcceptsPerWake = 16;
constexpr uint64_t kNoDescriptorsPauseMs = 100;

}  // namespace

struct PeerAcceptor::State : std::enable_shared_from_this<PeerAcceptor::State> {
  State(UnixListener socket, PeerRule peers, Doorkeeper& on, Callbacks calls)
      : listener(std::move(socket)),
        rule(std::move(peers)),
        doorkeeper(on),
        callbacks(std::move(calls)) {}

  void Watch() {
    doorkeeper.Watch(listener.fd(), EPOLLIN, [weak = weak_from_this()](uint32_t) {
      if (const std::shared_ptr<State> self = weak.lock()) self->AcceptSome();
    });
  }

  void AcceptSome() {
    for (int i = 0; i < kAcceptsPerWake; ++i) {
      UniqueFd peer(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!peer.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Pause();
        return;
      }
      Admit(std::move(peer));
    }
  }

  void Admit(UniqueFd socket) {
    const std::optional<PeerCredentials> peer = ReadPeer(socket.get());
    if (peer && rule.Allows(*peer)) {
      callbacks.accepted(std::move(socket), peer->process);
      return;
    }
    if (callbacks.refused != nullptr) callbacks.refused(peer ? peer->process : PeerProcess{});
  }

  // Out of descriptors: the waiting connection would wake us again and again.
  void Pause() {
    doorkeeper.Unwatch(listener.fd());
    doorkeeper.After(kNoDescriptorsPauseMs, [weak = weak_from_this()] {
      const std::shared_ptr<State> self = weak.lock();
      if (self != nullptr && !self->stopped) self->Watch();
    });
  }

  UnixListener listener;
  const PeerRule rule;
  Doorkeeper& doorkeeper;
  const Callbacks callbacks;
  bool stopped = false;  // doorkeeper's thread
};

PeerAcceptor::PeerAcceptor(UnixListener listener, PeerRule rule, Doorkeeper& doorkeeper,
                           Callbacks callbacks)
    : state_(std::make_shared<State>(std::move(listener), std::move(rule), doorkeeper,
                                     std::move(callbacks))) {
  state_->Watch();
}

PeerAcceptor::~PeerAcceptor() {
  state_->doorkeeper.RunAndWait([state = state_.get()] {
    state->stopped = true;
    state->doorkeeper.Unwatch(state->listener.fd());
  });
}

}  // namespace kvtriage
