#include "service/session/fd_socket.h"

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/error.h"
#include "proto/wire/fd_packet.h"
#include "service/memory/memfd.h"
#include "service/observe/fault_point.h"
#include "service/session/bad_token_guard.h"
#include "service/session/fd_message.h"
#include "service/session/fd_packets.h"
#include "service/session/peer_acceptor.h"

namespace kvtriage {
namespace {

using Clock = std::chrono::steady_clock;

template <typename T>
std::span<const std::byte> BytesOf(const T& packet) {
  return std::as_bytes(std::span(&packet, 1));
}

wire::FdRefused MakeRefused(const absl::Status& status, uint64_t tag, uint32_t index) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  const ErrorReason reason = info ? info->reason : ErrorReason::kInternal;
  return {MakeFdHeader<wire::FdRefused>(wire::FdPacketType::kRefused), tag,
          static_cast<uint32_t>(reason), index};
}

// Whether this service takes descriptors of that kind, and whether this one is fit to be mapped.
absl::Status CheckOffered(uint32_t kind, int fd) {
  constexpr uint32_t kDeviceAllocation = 2;
  if (kind == kDeviceAllocation) {
    return Error(ErrorReason::kUnsupported, "", "device allocations are not served");
  }
  if (kind != static_cast<uint32_t>(wire::FdKind::kMemfd)) {
    return Error(ErrorReason::kEnumUnspecified, "", "unknown kind of descriptor");
  }
  return CheckMemfd(fd).status();
}

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

// Everything but `count` is touched on the doorkeeper's thread only.
struct FdSocket::State : std::enable_shared_from_this<FdSocket::State> {
  struct Connection {
    UniqueFd socket;
    PeerProcess peer;
    Clock::time_point since;
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

  void OnAccepted(UniqueFd socket, const PeerProcess& peer);
  bool MakeRoom();
  void OnReadable(uint64_t id);
  void OnHello(uint64_t id, const wire::FdHello& hello);
  void OnOffer(uint64_t id, const wire::FdOffer& offer, std::vector<UniqueFd> fds);
  absl::StatusOr<std::vector<uint64_t>> TakeOffer(Session& session, const wire::FdOffer& offer,
                                                  std::vector<UniqueFd>& fds, uint32_t& index);
  template <typename T>
  void Send(uint64_t id, const T& packet, int fd = -1);
  void Refuse(uint64_t id, const wire::FdRefused& packet);
  void Close(uint64_t id);
  void CloseAll();
  void Sweep();
  void Tell(FdSocketEvent event, const PeerProcess& peer) const {
    if (on_event != nullptr) on_event(event, peer);
  }

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
  if (sweeping) return;
  sweeping = true;
  doorkeeper.After(limits.sweep_ms, [weak = weak_from_this()] {
    if (const std::shared_ptr<State> self = weak.lock()) self->Sweep();
  });
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

void FdSocket::State::OnReadable(uint64_t id) {
  Connection& connection = open.at(id);
  const PeerProcess peer = connection.peer;
  if (!connection.greeted && guard.Blocks(peer.uid, Clock::now())) {
    Tell(FdSocketEvent::kUidBlocked, peer);
    return Close(id);
  }
  FdMessage message = ReceiveFdMessage(connection.socket.get());
  if (message.result == Received::kNothing) return;
  FaultPoint("fd.after_receive");
  std::optional<FdRequest> request;
  if (message.result == Received::kPacket) {
    request = ParseFdRequest(message.bytes, message.fds.size());
  }
  if (request && std::holds_alternative<wire::FdHello>(*request)) {
    return OnHello(id, std::get<wire::FdHello>(*request));
  }
  if (request && connection.greeted) {
    return OnOffer(id, std::get<wire::FdOffer>(*request), std::move(message.fds));
  }
  mapper.Close(std::move(message.fds));
  if (message.result != Received::kClosed) Tell(FdSocketEvent::kMalformed, peer);
  Close(id);
}

void FdSocket::State::OnHello(uint64_t id, const wire::FdHello& hello) {
  Connection& connection = open.at(id);
  PeerPidfd pidfd = OpenPeerPidfd(connection.socket.get(), connection.peer);
  if (pidfd.gone) return Close(id);
  if (!pidfd.fd.valid() && !std::exchange(told_no_pidfd, true)) {
    Tell(FdSocketEvent::kNoPidfd, connection.peer);
  }
  const std::string_view token(reinterpret_cast<const char*>(hello.token), sizeof(hello.token));
  absl::StatusOr<std::shared_ptr<Session>> session =
      sessions.Bind(token, connection.peer, std::move(pidfd.fd));
  if (!session.ok()) {
    const wire::FdRefused refused = MakeRefused(session.status(), 0, 0);
    if (refused.reason == static_cast<uint32_t>(ErrorReason::kSessionUnknown)) {
      guard.Count(connection.peer.uid, Clock::now());
      Tell(FdSocketEvent::kBadToken, connection.peer);
    }
    return Refuse(id, refused);
  }
  FaultPoint("fd.after_hello");
  connection.greeted = true;
  connection.session = *session;
  const Ledger& ledger = *(*session)->ledger();
  Send(id,
       wire::FdBound{MakeFdHeader<wire::FdBound>(wire::FdPacketType::kBound), epoch, ledger.bytes(),
                     ledger.slots()},
       ledger.fd());
  FaultPoint("fd.after_ledger_sent");
}

absl::StatusOr<std::vector<uint64_t>> FdSocket::State::TakeOffer(Session& session,
                                                                 const wire::FdOffer& offer,
                                                                 std::vector<UniqueFd>& fds,
                                                                 uint32_t& index) {
  for (index = 0; index < offer.count; ++index) {
    const absl::Status fit = CheckOffered(offer.kind[index], fds[index].get());
    if (!fit.ok()) return fit;
  }
  index = 0;
  return session.memory().AddTickets(std::exchange(fds, {}));
}

void FdSocket::State::OnOffer(uint64_t id, const wire::FdOffer& offer, std::vector<UniqueFd> fds) {
  const std::shared_ptr<Session> session = open.at(id).LiveSession();
  if (session == nullptr) {
    mapper.Close(std::move(fds));
    const absl::Status ended = Error(ErrorReason::kSessionUnknown, "", "the session has ended");
    return Refuse(id, MakeRefused(ended, offer.tag, 0));
  }
  uint32_t index = 0;
  const absl::StatusOr<std::vector<uint64_t>> tickets = TakeOffer(*session, offer, fds, index);
  if (!tickets.ok()) {
    mapper.Close(std::move(fds));
    return Send(id, MakeRefused(tickets.status(), offer.tag, index));
  }
  FaultPoint("fd.before_tickets");
  wire::FdTickets answer{
      MakeFdHeader<wire::FdTickets>(wire::FdPacketType::kTickets), offer.tag, offer.count, 0, {}};
  std::copy(tickets->begin(), tickets->end(), answer.ticket);
  Send(id, answer);
}

// A peer that does not read its answers loses the connection; nothing is queued for it.
template <typename T>
void FdSocket::State::Send(uint64_t id, const T& packet, int fd) {
  if (!SendFdMessage(open.at(id).socket.get(), BytesOf(packet), fd)) Close(id);
}

void FdSocket::State::Refuse(uint64_t id, const wire::FdRefused& packet) {
  SendFdMessage(open.at(id).socket.get(), BytesOf(packet));
  Close(id);
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
  if (open.empty()) return;
  sweeping = true;
  doorkeeper.After(limits.sweep_ms, [weak = weak_from_this()] {
    if (const std::shared_ptr<State> self = weak.lock()) self->Sweep();
  });
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
