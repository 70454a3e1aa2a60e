// What clients say on the fd socket, and the answers.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/error.h"
#include "service/memory/memfd.h"
#include "service/observe/fault_point.h"
#include "service/session/fd_message.h"
#include "service/session/fd_packets.h"
#include "service/session/fd_socket_state.h"

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

}  // namespace kvtriage
