// Groups of ranks in the engine's books.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/engine_state.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

absl::Status Mismatch(std::string_view text) {
  return Error(ErrorReason::kGroupMismatch, "group", text);
}

GroupId IdOf(const Job& job, const Session& session) { return {session.uid(), GroupOf(job)->key}; }

bool SameCall(const CallKey& a, const CallKey& b) {
  return a.session_id == b.session_id && a.key == b.key;
}

std::chrono::steady_clock::time_point SteadyAt(absl::Time time) {
  // Far away is as good as never, and cannot wrap.
  const absl::Duration left = std::min(time - absl::Now(), absl::Hours(1));
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left);
}

}  // namespace

// ---- the lane -----------------------------------------------------------------------------------

void Engine::State::Park(std::unique_ptr<Job> job, absl::Duration spent) {
  FaultPoint("group.before_park");
  Callbacks later;
  const uint64_t session_id = job->session_id();
  const DeviceIndex lane = job->device;
  {
    const MutexLock lock(&mu);
    StopRunning(*job, spent);
    absl::Status status = CheckMayWait(*job);
    if (status.ok()) status = groups.Park(IdOf(*job, *job->call.session), job);
    if (!status.ok()) {
      std::vector<std::unique_ptr<Job>> refused;
      refused.push_back(std::move(job));
      Refuse(std::move(refused), status, /*dead=*/false, later);
    }
    Settle(session_id, later);
    groups_changed.NotifyAll();
  }
  later.Run();
  FinishAnswering(lane);
}

absl::Status Engine::State::CheckMayWait(const Job& job) {
  const Books& books = sessions[job.session_id()];
  // Also one whose end has not reached us yet.
  if (books.finished || job.call.session->ended()) return SessionEnded();
  for (const Waiting& release : books.releases) {
    if (!Touches(job.sequence_ids, release.ids)) continue;
    return Error(ErrorReason::kSequenceReleased, "sequences", "a sequence was released");
  }
  if (groups.Expects(IdOf(job, *job.call.session), job)) return absl::OkStatus();
  return Mismatch("the group has ended without this rank");
}

void Engine::State::FinishRanks(std::vector<std::unique_ptr<Job>> ranks,
                                std::vector<CallResult> results, absl::Duration spent) {
  FaultPoint("result.before_store");
  Callbacks answers, later;
  const DeviceIndex lane = ranks.front()->device;
  {
    const MutexLock lock(&mu);
    StopRunning(*ranks.front(), spent);
    std::set<uint64_t> of;
    for (size_t i = 0; i < ranks.size(); ++i) {
      answers.AnswerAll(store.Finish(ranks[i]->key, absl::Now(), results[i]), results[i]);
      CloseBooks(*ranks[i]);
      of.insert(ranks[i]->session_id());
    }
    for (const uint64_t session_id : of) Settle(session_id, later);
  }
  FaultPoint("result.after_store");
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i]->call.done(std::move(results[i]));
  answers.Run();
  later.Run();
  FinishAnswering(lane);
}

// ---- time
// -----------------------------------------------------------------------------------------

void Engine::State::KeepGroups() {
  for (;;) {
    Callbacks later;
    {
      const MutexLock lock(&mu);
      while (!stopped && !EndDueGroups(later)) {
        const std::optional<absl::Time> next = groups.NextDue();
        if (next) {
          groups_changed.WaitUntil(&mu, SteadyAt(*next));
        } else {
          groups_changed.Wait(&mu);
        }
      }
      if (stopped) return;
    }
    later.Run();
    TellQueue();
  }
}

bool Engine::State::EndDueGroups(Callbacks& later) {
  const auto unwanted = [this](const Job& job) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return job.call.cancelled != nullptr && job.call.cancelled->load() &&
           !store.HasRepeats(job.key);
  };
  const std::vector<GroupTable::Due> due = groups.FindDue(absl::Now(), unwanted);
  for (const GroupTable::Due& group : due) {
    EndGroup(group.id, group.unwanted,
             Error(ErrorReason::kKeyDead, "", "cancelled before any row moved"), /*dead=*/false,
             later);
  }
  return !due.empty();
}

void Engine::State::WakeKeeper() {
  const MutexLock lock(&mu);
  groups_changed.NotifyAll();
}

void Engine::State::Drain() {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    draining = true;
    // The rest of their ranks would be refused.
    for (const GroupId& id : groups.Incomplete()) {
      EndGroup(id, std::nullopt, absl::OkStatus(), /*dead=*/false, later);
    }
  }
  later.Run();
  TellQueue();
}

// ---- under the lock -----------------------------------------------------------------------------

absl::Status Engine::State::JoinGroup(const Job& job, const Session& session, absl::Time deadline,
                                      Callbacks& later) {
  if (GroupOf(job) == nullptr) return absl::OkStatus();
  const GroupId id = IdOf(job, session);
  absl::Status status = groups.Join(id, job, deadline);
  if (!status.ok()) {
    EndGroup(id, std::nullopt, absl::OkStatus(), /*dead=*/false, later);
    return status;
  }
  groups_changed.NotifyAll();  // its deadline may be the earliest
  return absl::OkStatus();
}

void Engine::State::EndGroup(const GroupId& id, const std::optional<CallKey>& culprit,
                             const absl::Status& own, bool dead, Callbacks& later) {
  std::vector<std::unique_ptr<Job>> others;
  for (GroupTable::Member& member : groups.End(id)) {
    std::vector<std::unique_ptr<Job>> jobs;
    if (member.job != nullptr) {
      jobs.push_back(std::move(member.job));
    } else {
      jobs = queue.Take(member.call.session_id, [&member](const Job& job) {
        return SameCall(job.key, member.call) && GroupOf(job) != nullptr;
      });
    }
    if (culprit && SameCall(*culprit, member.call)) {
      Refuse(std::move(jobs), own, dead, later);
    } else {
      std::move(jobs.begin(), jobs.end(), std::back_inserter(others));
    }
  }
  Refuse(std::move(others), Mismatch("a rank is missing, has failed, or came twice"),
         /*dead=*/false, later);
}

void Engine::State::LeaveGroup(const Job& job, Callbacks& later) {
  if (GroupOf(job) == nullptr) return;
  const GroupId id = IdOf(job, *job.call.session);
  if (!groups.Expects(id, job)) return;
  EndGroup(id, std::nullopt, absl::OkStatus(), /*dead=*/false, later);
}

void Engine::State::EndWaiting(uint64_t session_id, const std::function<bool(const Job&)>& matches,
                               const absl::Status& status, bool dead, Callbacks& later) {
  for (const GroupTable::Found& found : groups.Waiting(session_id, matches)) {
    EndGroup(found.id, found.call, status, dead, later);
  }
}

}  // namespace kvtriage
