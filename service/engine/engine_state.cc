// The lane's side of the books, and what both sides do under the lock.
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

uint64_t RandomSeed() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

Engine::State::State(const EngineLimits& engine_limits, EngineObserver* engine_observer)
    : limits(engine_limits),
      observer(engine_observer),
      scores(std::make_shared<ScoreBudget>(engine_limits.score_bytes)),
      store(engine_limits),
      groups(engine_limits) {}

void Engine::State::AddLane(EngineObserver* lane_observer) {
  const MutexLock lock(&mu);
  lanes.emplace_back(limits, RandomSeed(), lane_observer);
}

bool Engine::State::Running::Of(uint64_t session_id) const {
  return std::any_of(callers.begin(), callers.end(), [session_id](const Caller& caller) {
    return caller.session_id == session_id;
  });
}

bool Engine::State::Running::Touches(uint64_t session_id, const std::vector<uint64_t>& ids) const {
  return std::any_of(callers.begin(), callers.end(), [&](const Caller& caller) {
    return caller.session_id == session_id && kvtriage::Touches(caller.sequence_ids, ids);
  });
}

bool Engine::State::Runs(uint64_t session_id) const {
  return std::any_of(lanes.begin(), lanes.end(), [session_id](const LaneBooks& lane) {
    return lane.running && lane.running->Of(session_id);
  });
}

bool Engine::State::Runs(uint64_t session_id, const std::vector<uint64_t>& ids) const {
  return std::any_of(lanes.begin(), lanes.end(), [&](const LaneBooks& lane) {
    return lane.running && lane.running->Touches(session_id, ids);
  });
}

void Engine::State::StopRunning(const Job& job, absl::Duration spent) {
  LaneBooks& lane = lanes[job.device];
  lane.admission.Learn(job.bytes, spent);
  lane.running.reset();
  lane.answering = true;
}

void Engine::State::FinishAnswering(DeviceIndex lane) {
  const MutexLock lock(&mu);
  lanes[lane].answering = false;
  changed.NotifyAll();
}

// ---- the lanes ----------------------------------------------------------------------------------

std::unique_ptr<Job> Engine::State::NextJob(DeviceIndex lane) {
  for (;;) {
    {
      const MutexLock lock(&mu);
      while (!stopped && !HasNext(lane)) changed.Wait(&mu);
      if (stopped) return nullptr;
    }
    FaultPoint("admit.before_dequeue");
    std::unique_ptr<Job> job;
    {
      const MutexLock lock(&mu);
      job = TakeNext(lane);  // null when it was taken out meanwhile
      if (job != nullptr) {
        Running now{{}, job->bytes, absl::Now()};
        if (job->ranks.empty()) now.callers = {{job->session_id(), job->sequence_ids}};
        for (const std::unique_ptr<Job>& rank : job->ranks) {
          now.callers.push_back({rank->session_id(), rank->sequence_ids});
        }
        lanes[lane].running = std::move(now);
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
  const DeviceIndex lane = job->device;
  {
    const MutexLock lock(&mu);
    StopRunning(*job, spent);
    if (job->stream != nullptr) {
      FinishStep(*job, result, answers);
    } else {
      answers.AnswerAll(store.Finish(job->key, absl::Now(), result), result);
      CloseBooks(*job);
      LeaveGroup(*job, later);
    }
    Settle(job->session_id(), later);
  }
  TellScores();
  FaultPoint("result.after_store");
  if (job->call.done != nullptr) job->call.done(std::move(result));
  answers.Run();
  later.Run();
  TellScores();
  FinishAnswering(lane);
}

// ---- under the lock -----------------------------------------------------------------------------

Engine::State::Books* Engine::State::BooksOf(const Session& session) {
  // The session table marks a session as ended before it tells us, so none comes back to life here.
  if (session.ended()) return nullptr;
  Books& books = sessions[session.id()];
  if (books.sequences == nullptr) {
    books.sequences = std::make_shared<SequenceTable>(limits.sequences_per_session, scores);
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
      later.Answer(std::move(call.done), std::move(result));
      return false;
    case IdempotencyStore::Found::kWaits:
      return false;
  }
  return false;
}

void Engine::State::Resolve(Call& call, const CallKey& key, CallKind kind, Callbacks& later) {
  if (BooksOf(*call.session) == nullptr) {
    later.Refuse(std::move(call.done), SessionEnded());
    return;
  }
  const auto is_it = [&key, kind](const Job& job) {
    return job.kind == kind && job.key.key == key.key;
  };
  Refuse(
      queue.Take(key.session_id, is_it),
      Error(ErrorReason::kKeyDead, "header.idempotency_key", "taken out of the queue by a resolve"),
      /*dead=*/true, later);
  EndWaiting(key.session_id, is_it,
             Error(ErrorReason::kKeyDead, "header.idempotency_key",
                   "taken from the other ranks by a resolve"),
             /*dead=*/true, later);
  // A stream whose layer was taken out ends. A copy: it leaves the books.
  for (const auto& stream : std::vector(sessions[key.session_id].streams)) Advance(stream, later);
  CallResult result;
  if (store.Resolve(key, kind, absl::Now(), call.done, result) ==
      IdempotencyStore::Found::kAnswered) {
    later.Answer(std::move(call.done), std::move(result));
  }
}

absl::Status Engine::State::Admit(const Job& job, const Books& books, absl::Time deadline) {
  const absl::Time now = absl::Now();
  LaneBooks& lane = lanes[job.device];
  const JobQueue::Load queued = queue.load(job.device);
  AdmissionState state{draining, sick, books.jobs, queued.jobs, queued.bytes, 0, {}};
  if (lane.running) {
    state.running_bytes = lane.running->bytes;
    state.running_since = now - lane.running->started;
  }
  KVTRIAGE_RETURN_IF_ERROR(lane.admission.Check(state, deadline - now));
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
    if (job->stream != nullptr) {
      RefuseStep(*job, status, dead, later);
      continue;
    }
    const CallResult result = Refusal(status);
    CloseBooks(*job);
    later.Answer(std::move(job->call.done), result);
    later.AnswerAll(dead ? store.MarkDead(job->key) : store.Finish(job->key, absl::Now(), result),
                    result);
    LeaveGroup(*job, later);
  }
  changed.NotifyAll();
}

void Engine::State::Settle(uint64_t session_id, Callbacks& later) {
  Books& books = sessions[session_id];
  std::erase_if(books.releases, [&](Waiting& release) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (Runs(session_id, release.ids)) return false;
    for (const uint64_t id : release.ids) books.sequences->Forget(id);
    later.Add([done = std::move(release.done), released = release.released] { done(released); });
    return true;
  });
  if (!books.finished || Runs(session_id)) return;
  EndStreams(session_id, SessionEnded(), later);
  std::function<void()> finished = std::move(books.finished);
  CloseSession(session_id, later);
  later.Add(std::move(finished));
}

void Engine::State::CloseSession(uint64_t session_id, Callbacks& later) {
  sessions.erase(session_id);
  later.AnswerAll(store.DropSession(session_id), Refusal(SessionEnded()));
}

uint32_t Engine::State::JobsLeft() const {
  uint32_t jobs = queue.size() + groups.waiting();
  for (const LaneBooks& lane : lanes) jobs += lane.running || lane.answering ? 1 : 0;
  for (const auto& [id, books] : sessions) {
    for (const auto& stream : books.streams) jobs += stream->busy ? 0 : 1;
  }
  return jobs;
}

bool Engine::State::HasNext(DeviceIndex lane) const {
  if (groups.HasReady(lane)) return true;
  return queue.HasNext(lane,
                       [this](const Job& job) ABSL_NO_THREAD_SAFETY_ANALYSIS { return Held(job); });
}

std::unique_ptr<Job> Engine::State::TakeNext(DeviceIndex lane) {
  // A whole group first: its calls have had their turn, and hold their sessions' sequences.
  if (groups.HasReady(lane)) {
    auto job = std::make_unique<Job>();
    job->device = lane;
    job->ranks = groups.TakeReady(lane);
    return job;
  }
  return queue.Next(lane,
                    [this](const Job& job) ABSL_NO_THREAD_SAFETY_ANALYSIS { return Held(job); });
}

bool Engine::State::Held(const Job& job) const {
  const auto books = sessions.find(job.session_id());
  if (books == sessions.end()) return false;
  if (Runs(job.session_id(), job.sequence_ids)) return true;
  const auto same_sequence = [&job](const Job& other) {
    return Touches(job.sequence_ids, other.sequence_ids);
  };
  if (!groups.Waiting(job.session_id(), same_sequence).empty()) return true;
  return std::any_of(books->second.streams.begin(), books->second.streams.end(),
                     [&job](const auto& stream) {
                       return stream->opened && stream != job.stream &&
                              Touches(job.sequence_ids, stream->sequence_ids);
                     });
}

void Engine::State::TellScores() {
  if (observer == nullptr) return;
  const MutexLock in_order(&telling);
  observer->OnScores(scores->used());
}

void Engine::State::TellQueue() {
  const MutexLock in_order(&telling);
  std::vector<std::pair<EngineObserver*, uint32_t>> waiting;
  {
    const MutexLock lock(&mu);
    for (DeviceIndex i = 0; i < lanes.size(); ++i) {
      if (lanes[i].observer != nullptr) waiting.emplace_back(lanes[i].observer, queue.load(i).jobs);
    }
  }
  for (const auto& [lane_observer, jobs] : waiting) lane_observer->OnQueue(jobs);
}

}  // namespace kvtriage
