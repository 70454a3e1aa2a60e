// Calls as they come in, on any thread.
#include "service/engine/engine_state.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// What any job costs beside the bytes it reads, so that a queue of small jobs is not free.
constexpr uint64_t kJobBytes = 64u << 10;

}  // namespace

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
      if (status.ok()) status = JoinGroup(*job, *call.session, call.deadline, later);
      if (status.ok()) {
        store.Begin(job->key, job->kind, call.body);
        job->call = std::move(call);
        Enqueue(std::move(job), *books);
        queued = true;
      } else {
        later.Refuse(std::move(call.done), std::move(status));
      }
    }
  }
  later.Run();
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
        later.Refuse(std::move(call.done), std::move(status));
      }
    }
  }
  later.Run();
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
      waiting.AnswerAll(self->store.Finish(key, absl::Now(), result), result);
    }
    done(std::move(result));
    waiting.Run();
  });
}

void Engine::State::Release(const std::shared_ptr<Session>& session, std::vector<uint64_t> ids,
                            std::function<void(Released)> done) {
  std::sort(ids.begin(), ids.end());
  Callbacks later;
  bool dequeued = false;
  {
    const MutexLock lock(&mu);
    Released released;
    const auto found = sessions.find(session->id());
    if (found == sessions.end()) {
      released.already_gone = static_cast<uint32_t>(ids.size());
      later.Add([done = std::move(done), released] { done(released); });
    } else {
      Books& books = found->second;
      std::vector<std::unique_ptr<Job>> taken = queue.Take(session->id(), [&ids](const Job& job) {
        return !job.closes_stream() && Touches(job.sequence_ids, ids);
      });
      dequeued = !taken.empty();
      const bool runs = Runs(session->id(), ids);
      for (const uint64_t id : ids) {
        const auto has = [id](const std::unique_ptr<Job>& job) {
          return Touches(job->sequence_ids, {id});
        };
        const auto streams = [id](const std::shared_ptr<LayerStream>& stream) {
          return Touches(stream->sequence_ids, {id});
        };
        const auto waits = [id](const Job& job) { return Touches(job.sequence_ids, {id}); };
        const bool known = books.sequences->Forget(id);
        const bool live = Runs(session->id(), {id}) ||
                          !groups.Waiting(session->id(), waits).empty() ||
                          std::any_of(taken.begin(), taken.end(), has) ||
                          std::any_of(books.streams.begin(), books.streams.end(), streams);
        ++(known || live ? released.released : released.already_gone);
      }
      const absl::Status released_now =
          Error(ErrorReason::kSequenceReleased, "sequences", "a sequence was released");
      Refuse(std::move(taken), released_now, /*dead=*/false, later);
      EndWaiting(
          session->id(), [&ids](const Job& job) { return Touches(job.sequence_ids, ids); },
          released_now, /*dead=*/false, later);
      // A copy: a stream that ends leaves the books.
      for (const auto& stream : std::vector(books.streams)) {
        if (Touches(stream->sequence_ids, ids)) Break(stream, released_now, later);
      }
      if (runs) {
        books.releases.push_back({std::move(ids), released, std::move(done)});
      } else {
        later.Add([done = std::move(done), released] { done(released); });
      }
    }
  }
  TellScores();
  later.Run();
  if (dequeued) TellQueue();
}

void Engine::State::EndSession(const std::shared_ptr<Session>& session,
                               std::function<void()> finished) {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    const uint64_t id = session->id();
    const auto all = [](const Job&) { return true; };
    Refuse(queue.Take(id, all), SessionEnded(), /*dead=*/false, later);
    EndWaiting(id, all, SessionEnded(), /*dead=*/false, later);
    if (Runs(id)) {
      sessions[id].finished = std::move(finished);
    } else {
      EndStreams(id, SessionEnded(), later);
      CloseSession(id, later);
      later.Add(std::move(finished));
    }
  }
  TellScores();
  later.Run();
  TellQueue();
}

void Engine::State::GiveUp() {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    sick = true;
    const absl::Status lost = Error(ErrorReason::kDeviceLost, "", "the device is lost");
    Refuse(queue.TakeAll(), lost, /*dead=*/false, later);
    for (const GroupId& id : groups.All()) {
      EndGroup(id, std::nullopt, absl::OkStatus(), /*dead=*/false, later);
    }
    for (const auto& [id, books] : sessions) EndStreams(id, lost, later);
  }
  later.Run();
}

void Engine::State::Stop() {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    stopped = true;
    draining = true;
    const absl::Status stopping = Error(ErrorReason::kDraining, "", "the service is stopping");
    Refuse(queue.TakeAll(), stopping, /*dead=*/false, later);
    for (const GroupId& id : groups.All()) {
      EndGroup(id, std::nullopt, absl::OkStatus(), /*dead=*/false, later);
    }
    groups_changed.NotifyAll();
    for (const auto& [id, books] : sessions) EndStreams(id, stopping, later);
    changed.NotifyAll();
  }
  later.Run();
}

}  // namespace kvtriage
