// HELLO on the fd socket: which process is there.
#include <sys/epoll.h>

#include <utility>

#include "kernels/core/status_macros.h"
#include "service/session/session_table_state.h"

namespace kvtriage {

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Bind(std::string_view token,
                                                            const PeerProcess& peer,
                                                            UniqueFd pidfd) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Find(token));
  const uint64_t process_number = ProcessNumber(pidfd.get());
  std::unique_ptr<Ledger> ledger;
  if (!session->bound()) {
    // Made before the lock; the loser of two first HELLOs throws its own away.
    KVTRIAGE_ASSIGN_OR_RETURN(
        ledger, Ledger::Create(state_->epoch, session->id(), state_->limits.ledger_bytes,
                               state_->limits.ledger_slots));
  }
  const bool is_first = ledger != nullptr;
  KVTRIAGE_RETURN_IF_ERROR(state_->Publish(session, peer, process_number, pidfd, ledger));
  if (is_first && ledger == nullptr && state_->sessions != nullptr) {
    state_->sessions->OnBound(*session, peer);
  }
  return session;
}

absl::Status SessionTable::State::Publish(const SessionRef& session, const PeerProcess& peer,
                                          uint64_t process_number, UniqueFd& pidfd,
                                          std::unique_ptr<Ledger>& ledger) {
  MutexLock lock(&mutex);
  if (session->ended()) return SessionUnknown();
  if (session->bound()) return CheckSameProcess(*session, peer, process_number);
  if (bound >= limits.max_bound)
    return TooManySessions("too many sessions are bound", limits.max_bound);
  session->peer_ = peer;
  session->process_number_ = process_number;
  const auto on_death = [self = weak_from_this(),
                         weak = std::weak_ptr<Session>(session)](uint32_t) {
    const std::shared_ptr<State> table = self.lock();
    const SessionRef dead = weak.lock();
    if (table != nullptr && dead != nullptr) table->End(dead, EndCause::kPeerDied);
  };
  // Under the lock, so that an end that comes right now finds the watch and takes it back.
  if (pidfd.valid() && doorkeeper.Watch(pidfd.get(), EPOLLIN, on_death)) {
    session->pidfd_ = std::move(pidfd);
  }
  session->ledger_ = std::move(ledger);
  session->bound_.store(true, std::memory_order_release);
  ++bound;
  return absl::OkStatus();
}

absl::Status SessionTable::State::CheckSameProcess(const Session& session, const PeerProcess& peer,
                                                   uint64_t process_number) const {
  const bool numbered = process_number != 0 && session.process_number_ != 0;
  // Without numbers a pid will do, because the session ends with its process; pid 0 tells nothing.
  const bool same = numbered ? process_number == session.process_number_
                             : peer.pid != 0 && peer.pid == session.peer_.pid;
  return same && peer.uid == session.peer_.uid ? absl::OkStatus() : SessionUnknown();
}

}  // namespace kvtriage
