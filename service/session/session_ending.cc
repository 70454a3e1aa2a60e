// The end of a session, step by step on the doorkeeper. Nothing here blocks: each step that takes
// time runs elsewhere and posts its end.
#include <atomic>
#include <utility>

#include "service/observe/fault_point.h"
#include "service/session/session_table_state.h"

namespace kvtriage {
namespace {

bool EndedByUs(EndCause cause) {
  return cause == EndCause::kPeerDied || cause == EndCause::kDrain || cause == EndCause::kProtocol;
}

}  // namespace

void SessionTable::State::End(const SessionRef& session, EndCause cause) {
  {
    MutexLock lock(&mutex);
    if (session->ended_.exchange(true, std::memory_order_acq_rel)) return;
    attached.erase(session->id());
  }
  doorkeeper.Post([self = shared_from_this(), session, cause] { self->RunEnd(session, cause); });
}

void SessionTable::State::RunEnd(const SessionRef& session, EndCause cause) {
  FaultPoint("session.ending");
  UniqueFd pidfd;
  std::function<void(const SessionNotice&)> notify;
  EngineEnd end_jobs;
  {
    MutexLock lock(&mutex);
    pidfd = std::move(session->pidfd_);
    notify = std::exchange(session->notify_, nullptr);
    end_jobs = engine_end;
  }
  if (pidfd.valid()) doorkeeper.Unwatch(pidfd.get());
  pidfd.reset();
  if (notify != nullptr && EndedByUs(cause)) {
    notify({NoticeKind::kSessionEnding, 0, EndCauseName(cause)});
  }

  // Two things end at their own time: the jobs, and the mappings (which wait for the pins of the
  // jobs).
  auto left = std::make_shared<int>(2);  // doorkeeper's thread only
  const auto ended_one = [self = shared_from_this(), session, cause, left] {
    if (--*left == 0) self->OnClosed(session, cause);
  };
  const auto jobs_ended = [self = shared_from_this(), session, ended_one] {
    self->doorkeeper.Post([self, session, ended_one] {
      self->OnEngineFinished(session);
      ended_one();
    });
  };
  if (end_jobs != nullptr) {
    end_jobs(session, jobs_ended);
  } else {
    jobs_ended();
  }
  session->memory().RetireAll(
      [self = shared_from_this(), ended_one] { self->doorkeeper.Post(ended_one); });
}

void SessionTable::State::OnEngineFinished(const SessionRef& session) {
  if (Ledger* ledger = session->ledger()) ledger->CloseSession();
}

void SessionTable::State::OnClosed(const SessionRef& session, EndCause cause) {
  FaultPoint("session.before_close");
  std::function<void(EndCause)> on_ended;
  {
    MutexLock lock(&mutex);
    if (session->bound()) --bound;
    on_ended = std::exchange(session->on_ended_, nullptr);
  }
  if (sessions != nullptr) sessions->OnEnded(*session, cause);
  if (on_ended != nullptr) on_ended(cause);
  {
    MutexLock lock(&mutex);
    --unclosed;
  }
  one_closed.NotifyAll();
}

}  // namespace kvtriage
