#include "service/engine/engine_state.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// What any job costs beside the bytes it reads, so that a queue of small jobs is not free.
constexpr uint64_t kJobBytes = 64u << 10;

uint64_t RandomSeed() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

CallResult Refused(absl::Status status) {
  CallResult result;
  result.status = std::move(status);
  return result;
}

absl::Status SessionEnded() {
  return Error(ErrorReason::kSessionEnded, "", "the session has ended");
}

void Later(Callbacks& later, std::function<void(CallResult)> done, CallResult result) {
  later.push_back(
      [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void LaterAll(Callbacks& later, std::vector<IdempotencyStore::Done> waiters, CallResult result) {
  result.replayed = result.status.ok();
  for (IdempotencyStore::Done& done : waiters) Later(later, std::move(done), result);
}

void CallAll(const Callbacks& later) {
  for (const std::function<void()>& call : later) call();
}

bool Touches(const std::vector<uint64_t>& mine, const std::vector<uint64_t>& others) {
  return std::any_of(mine.begin(), mine.end(), [&others](uint64_t id) {
    return std::find(others.begin(), others.end(), id) != others.end();
  });
}

}  // namespace

Engine::State::State(const EngineLimits& engine_limits, EngineObserver* engine_observer)
    : limits(engine_limits),
      observer(engine_observer),
      store(engine_limits),
      admission(engine_limits, RandomSeed()) {}

// ---- calls --------------------------------------------------------------------------------------

void Engine::State::Submit(Call call, const RequestHeader& header, std::unique_ptr<Job> job) {
  Callbacks later;
  bool queued = false;
  {
    const MutexLock lock(&mu);
    if (IsNew(call, header, job->kind, later)) {
      Books* books = BooksOf(*call.session);
      job->key = {call.session->id(), header.key};
      job->bytes += kJobBytes;
      absl::Status status = books == nullptr ? SessionEnded() : Admit(*job, *books, call.deadline);
      if (status.ok()) {
        store.Begin(job->key, job->kind, call.body);
        job->call = std::move(call);
        Enqueue(std::move(job), *books);
        queued = true;
      } else {
        Later(later, std::move(call.done), Refused(std::move(status)));
      }
    }
  }
  CallAll(later);
  if (!queued) return;
  // Both after the lock, where a point may hang: the lane may have begun.
  FaultPoint("admit.after_key");
  FaultPoint("admit.after_enqueue");
  TellQueue();
}

void Engine::State::Register(Call call, RegisterSpec spec) {
  const CallKey key{call.session->id(), spec.header.key};
  const absl::Time began = absl::Now();
  Callbacks later;
  bool runs = false;
  {
    const MutexLock lock(&mu);
    if (IsNew(call, spec.header, CallKind::kRegister, later)) {
      absl::Status status =
          BooksOf(*call.session) == nullptr ? SessionEnded() : Admission::CheckOpen(draining, sick);
      runs = status.ok();
      if (runs) {
        store.Begin(key, CallKind::kRegister, call.body);
      } else {
        Later(later, std::move(call.done), Refused(std::move(status)));
      }
    }
  }
  CallAll(later);
  if (!runs) return;
  SessionMemory& memory = call.session->memory();
  memory.Register(std::move(spec), [self = shared_from_this(), key, began,
                                    done =
                                        std::move(call.done)](absl::StatusOr<RegisteredIds> ids) {
    CallResult result;
    result.status = ids.status();
    if (ids.ok()) {
      auto answer = std::make_shared<Answer>();
      answer->timing.total = static_cast<uint32_t>(absl::ToInt64Microseconds(absl::Now() - began));
      answer->body = *std::move(ids);
      result.answer = std::move(answer);
    }
    Callbacks waiting;
    {
      const MutexLock lock(&self->mu);
      LaterAll(waiting, self->store.Finish(key, absl::Now(), result), result);
    }
    done(result);
    CallAll(waiting);
  });
}

void Engine::State::Release(const std::shared_ptr<Session>& session, std::vector<uint64_t> ids,
                            std::function<void(Released)> done) {
  Callbacks later;
  bool dequeued = false;
  {
    const MutexLock lock(&mu);
    Released released;
    const auto found = sessions.find(session->id());
    if (found == sessions.end()) {
      released.already_gone = static_cast<uint32_t>(ids.size());
      later.push_back([done = std::move(done), released] { done(released); });
    } else {
      Books& books = found->second;
      std::vector<std::unique_ptr<Job>> taken = queue.Take(
          session->id(), [&ids](const Job& job) { return Touches(job.sequence_ids, ids); });
      dequeued = !taken.empty();
      const bool runs =
          running && running->session_id == session->id() && Touches(running->sequence_ids, ids);
      for (const uint64_t id : ids) {
        const auto has = [id](const std::unique_ptr<Job>& job) {
          return Touches(job->sequence_ids, {id});
        };
        const bool known = books.sequences->Forget(id);
        const bool live = (runs && Touches(running->sequence_ids, {id})) ||
                          std::any_of(taken.begin(), taken.end(), has);
        ++(known || live ? released.released : released.already_gone);
      }
      Refuse(std::move(taken),
             Error(ErrorReason::kSequenceReleased, "sequences", "a sequence was released"),
             /*dead=*/false, later);
      if (runs) {
        books.releases.push_back({std::move(ids), released, std::move(done)});
      } else {
        later.push_back([done = std::move(done), released] { done(released); });
      }
    }
  }
  CallAll(later);
  if (dequeued) TellQueue();
}

void Engine::State::EndSession(const std::shared_ptr<Session>& session,
                               std::function<void()> finished) {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    const uint64_t id = session->id();
    Refuse(queue.Take(id, [](const Job&) { return true; }), SessionEnded(), /*dead=*/false, later);
    if (running && running->session_id == id) {
      sessions[id].finished = std::move(finished);
    } else {
      CloseSession(id, later);
      later.push_back(std::move(finished));
    }
  }
  CallAll(later);
  TellQueue();
}

void Engine::State::Stop() {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    stopped = true;
    draining = true;
    Refuse(queue.TakeAll(), Error(ErrorReason::kDraining, "", "the service is stopping"),
           /*dead=*/false, later);
    changed.NotifyAll();
  }
  CallAll(later);
}

// ---- the lane -----------------------------------------------------------------------------------

std::unique_ptr<Job> Engine::State::NextJob() {
  for (;;) {
    {
      const MutexLock lock(&mu);
      while (!stopped && queue.size() == 0) changed.Wait(&mu);
      if (stopped) return nullptr;
    }
    FaultPoint("admit.before_dequeue");
    std::unique_ptr<Job> job;
    {
      const MutexLock lock(&mu);
      job = queue.Next();  // null when it was taken out meanwhile
      if (job != nullptr) {
        running = Running{job->session_id(), job->sequence_ids, job->bytes, absl::Now()};
      }
    }
    TellQueue();
    if (job != nullptr) return job;
  }
}

bool Engine::State::HasRepeats(const Job& job) {
  const MutexLock lock(&mu);
  return store.HasRepeats(job.key);
}

void Engine::State::Finish(std::unique_ptr<Job> job, CallResult result, absl::Duration spent) {
  FaultPoint("result.before_store");
  Callbacks answers, later;
  {
    const MutexLock lock(&mu);
    admission.Learn(job->bytes, spent);
    LaterAll(answers, store.Finish(job->key, absl::Now(), result), result);
    running.reset();
    answering = true;
    CloseBooks(*job);
    Settle(job->session_id(), later);
  }
  FaultPoint("result.after_store");
  job->call.done(std::move(result));
  CallAll(answers);
  CallAll(later);
  const MutexLock lock(&mu);
  answering = false;
  changed.NotifyAll();
}

// ---- under the lock -----------------------------------------------------------------------------

Engine::State::Books* Engine::State::BooksOf(const Session& session) {
  // The session table marks a session as ended before it tells us, so none comes back to life here.
  if (session.ended()) return nullptr;
  Books& books = sessions[session.id()];
  if (books.sequences == nullptr) {
    books.sequences = std::make_shared<SequenceTable>(limits.sequences_per_session);
  }
  return &books;
}

bool Engine::State::IsNew(Call& call, const RequestHeader& header, CallKind kind,
                          Callbacks& later) {
  const CallKey key{call.session->id(), header.key};
  if (header.resolve) {
    Resolve(call, key, kind, later);
    return false;
  }
  CallResult result;
  switch (store.Arrive(key, kind, call.body, absl::Now(), call.done, result)) {
    case IdempotencyStore::Found::kUnseen:
      return true;
    case IdempotencyStore::Found::kAnswered:
      Later(later, std::move(call.done), std::move(result));
      return false;
    case IdempotencyStore::Found::kWaits:
      return false;
  }
  return false;
}

void Engine::State::Resolve(Call& call, const CallKey& key, CallKind kind, Callbacks& later) {
  if (BooksOf(*call.session) == nullptr) {
    Later(later, std::move(call.done), Refused(SessionEnded()));
    return;
  }
  const auto is_it = [&key, kind](const Job& job) {
    return job.kind == kind && job.key.key == key.key;
  };
  Refuse(
      queue.Take(key.session_id, is_it),
      Error(ErrorReason::kKeyDead, "header.idempotency_key", "taken out of the queue by a resolve"),
      /*dead=*/true, later);
  CallResult result;
  if (store.Resolve(key, kind, absl::Now(), call.done, result) ==
      IdempotencyStore::Found::kAnswered) {
    Later(later, std::move(call.done), std::move(result));
  }
}

absl::Status Engine::State::Admit(const Job& job, const Books& books, absl::Time deadline) {
  const absl::Time now = absl::Now();
  AdmissionState state{draining, sick, books.jobs, queue.size(), queue.bytes(), 0, {}};
  if (running) {
    state.running_bytes = running->bytes;
    state.running_since = now - running->started;
  }
  KVTRIAGE_RETURN_IF_ERROR(admission.Check(state, deadline - now));
  for (const Waiting& release : books.releases) {
    if (!Touches(job.sequence_ids, release.ids)) continue;
    return Error(ErrorReason::kSequenceReleased, "sequences", "a sequence is being released");
  }
  if (job.ledger_slot && books.ledger_slots.contains(*job.ledger_slot)) {
    return Error(ErrorReason::kLedgerSlotBusy, "act.in_place.ledger_slot",
                 "a job in flight has this slot")
        .Got(*job.ledger_slot);
  }
  return absl::OkStatus();
}

void Engine::State::Enqueue(std::unique_ptr<Job> job, Books& books) {
  job->id = next_job_id++;
  job->sequences = books.sequences;
  job->admitted = absl::Now();
  ++books.jobs;
  if (job->ledger_slot) books.ledger_slots.insert(*job->ledger_slot);
  queue.Push(std::move(job));
  changed.NotifyAll();
}

void Engine::State::CloseBooks(const Job& job) {
  Books& books = sessions[job.session_id()];
  --books.jobs;
  if (job.ledger_slot) books.ledger_slots.erase(*job.ledger_slot);
}

void Engine::State::Refuse(std::vector<std::unique_ptr<Job>> jobs, const absl::Status& status,
                           bool dead, Callbacks& later) {
  for (const std::unique_ptr<Job>& job : jobs) {
    const CallResult result = Refused(status);
    CloseBooks(*job);
    Later(later, std::move(job->call.done), result);
    LaterAll(later, dead ? store.MarkDead(job->key) : store.Finish(job->key, absl::Now(), result),
             result);
  }
  changed.NotifyAll();
}

void Engine::State::Settle(uint64_t session_id, Callbacks& later) {
  Books& books = sessions[session_id];
  for (Waiting& release : books.releases) {
    for (const uint64_t id : release.ids) books.sequences->Forget(id);
    later.push_back(
        [done = std::move(release.done), released = release.released] { done(released); });
  }
  books.releases.clear();
  if (!books.finished) return;
  std::function<void()> finished = std::move(books.finished);
  CloseSession(session_id, later);
  later.push_back(std::move(finished));
}

void Engine::State::CloseSession(uint64_t session_id, Callbacks& later) {
  sessions.erase(session_id);
  LaterAll(later, store.DropSession(session_id), Refused(SessionEnded()));
}

uint32_t Engine::State::JobsLeft() const { return queue.size() + (running || answering ? 1 : 0); }

void Engine::State::TellQueue() {
  if (observer == nullptr) return;
  const MutexLock in_order(&telling);
  uint32_t waiting = 0;
  {
    const MutexLock lock(&mu);
    waiting = queue.size();
  }
  observer->OnQueue(waiting);
}

}  // namespace kvtriage
