// The engine's books: who is attached, what is queued, what runs, which keys mean what. One lock
// guards them; callbacks are collected under it and called after it.
#ifndef KVTRIAGE_SERVICE_ENGINE_ENGINE_STATE_H_
#define KVTRIAGE_SERVICE_ENGINE_ENGINE_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/core/mutex.h"
#include "service/engine/admission.h"
#include "service/engine/callbacks.h"
#include "service/engine/engine.h"
#include "service/engine/group_table.h"
#include "service/engine/idempotency.h"
#include "service/engine/job_queue.h"
#include "service/engine/lane.h"
#include "service/engine/layer_stream.h"

namespace kvtriage {

struct Engine::State final : LaneDesk, std::enable_shared_from_this<Engine::State> {
  State(const EngineLimits& engine_limits, EngineObserver* engine_observer);
  // Of the next device, before the first job.
  void AddLane(EngineObserver* lane_observer);

  // ---- calls (any thread) ----
  void Submit(Call call, const RequestHeader& header, std::unique_ptr<Job> job);
  void Register(Call call, RegisterSpec spec);
  void Release(const std::shared_ptr<Session>& session, std::vector<uint64_t> ids,
               std::function<void(Released)> done);
  void EndSession(const std::shared_ptr<Session>& session, std::function<void()> finished);
  // No new jobs; groups that still need a rank end.
  void Drain();
  // No more jobs: the queued ones are refused, NextJob answers null.
  void Stop();
  // Answers all that waits with DEVICE_LOST, and what comes with DEVICE_SICK.
  void GiveUp();

  // ---- streams (any thread; layer_calls.cc) ----
  void Open(const std::shared_ptr<LayerStream>& stream);
  void Add(const std::shared_ptr<LayerStream>& stream, LayerCall layer);
  void HalfClose(const std::shared_ptr<LayerStream>& stream);
  void Drop(const std::shared_ptr<LayerStream>& stream, const absl::Status& why);

  // ---- groups of ranks (group_calls.cc) ----
  // Ends groups whose time is up, until Stop: the loop of a thread of its own.
  void KeepGroups();
  void WakeKeeper();

  // ---- the lanes ----
  std::unique_ptr<Job> NextJob(DeviceIndex lane) override;
  bool HasRepeats(const Job& job) override;
  void Finish(std::unique_ptr<Job> job, CallResult result, absl::Duration spent) override;
  void Park(std::unique_ptr<Job> job, absl::Duration spent) override;
  void FinishRanks(std::vector<std::unique_ptr<Job>> ranks, std::vector<CallResult> results,
                   absl::Duration spent) override;

  // A release that waits for running jobs.
  struct Waiting {
    std::vector<uint64_t> ids;
    Released released;
    std::function<void(Released)> done;
  };
  struct Books {  // of one session
    std::shared_ptr<SequenceTable> sequences;
    uint32_t jobs = 0;                // queued and running, and open streams
    std::set<uint32_t> ledger_slots;  // of those
    std::vector<std::shared_ptr<LayerStream>> streams;
    std::vector<Waiting> releases;
    std::function<void()> finished;  // set once the session has ended
  };
  struct Running {
    struct Caller {
      uint64_t session_id = 0;
      std::vector<uint64_t> sequence_ids;
    };
    std::vector<Caller> callers;  // one, or the ranks of a group
    uint64_t bytes = 0;
    absl::Time started;

    bool Of(uint64_t session_id) const;
    bool Touches(uint64_t session_id, const std::vector<uint64_t>& ids) const;
  };

  struct LaneBooks {
    LaneBooks(const EngineLimits& limits, uint64_t seed, EngineObserver* lane_observer)
        : observer(lane_observer), admission(limits, seed) {}
    EngineObserver* const observer;  // may be null
    Admission admission;
    std::optional<Running> running;
    bool answering = false;  // a finished job's callbacks are being called
  };
  // The job that runs on the lane is over: its callbacks come next, then FinishAnswering.
  void StopRunning(const Job& job, absl::Duration spent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void FinishAnswering(DeviceIndex lane) ABSL_LOCKS_EXCLUDED(mu);
  // Whether a lane runs a job of the session, or one that touches the sequences.
  bool Runs(uint64_t session_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool Runs(uint64_t session_id, const std::vector<uint64_t>& ids) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Of a session that has not ended; else null.
  Books* BooksOf(const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Answers or parks a call whose key is known, or that only resolves. Whether it is new and may
  // run.
  bool IsNew(Call& call, const RequestHeader& header, CallKind kind, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Resolve(Call& call, const CallKey& key, CallKind kind, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  absl::Status Admit(const Job& job, const Books& books, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Enqueue(std::unique_ptr<Job> job, Books& books) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The job is over, or never ran: its session's numbers go down.
  void CloseBooks(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Answers jobs that left the queue without running. `dead`: their keys never run.
  void Refuse(std::vector<std::unique_ptr<Job>> jobs, const absl::Status& status, bool dead,
              Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A running job of this session is over: releases and the session's end go on, unless they wait
  // for another lane's.
  void Settle(uint64_t session_id, Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void CloseSession(uint64_t session_id, Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  uint32_t JobsLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The queue's next job that may run on the lane.
  bool HasNext(DeviceIndex lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  std::unique_ptr<Job> TakeNext(DeviceIndex lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether a stream or a running job has the sequences of a queued job.
  bool Held(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Starts the stream's next step, if there is one and none is under way.
  void Advance(const std::shared_ptr<LayerStream>& stream, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool AdvanceLayer(const std::shared_ptr<LayerStream>& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PushStep(const std::shared_ptr<LayerStream>& stream, LayerStep step, const LayerCall& layer,
                std::shared_ptr<const Answer> stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The step is over; the engine goes on with the stream unless it or the session ends.
  void FinishStep(const Job& job, const CallResult& result, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The step left the queue without running.
  void RefuseStep(const Job& job, const absl::Status& status, bool dead, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The stream ends with `why` after the step that is under way.
  void Break(const std::shared_ptr<LayerStream>& stream, const absl::Status& why, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndStream(const std::shared_ptr<LayerStream>& stream, CallResult result, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // All streams of a session, none of which has a step under way.
  void EndStreams(uint64_t session_id, const absl::Status& why, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // An admitted call joins its group. An error ends the group too.
  absl::Status JoinGroup(const Job& job, const Session& session, absl::Time deadline,
                         Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Ends a group: its calls get GROUP_MISMATCH, and `culprit`'s, if it waits, its `own` status.
  void EndGroup(const GroupId& id, const std::optional<CallKey>& culprit, const absl::Status& own,
                bool dead, Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A call that is over without its group takes the group with it.
  void LeaveGroup(const Job& job, Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Ends the waiting calls of a session that match, and so their groups.
  void EndWaiting(uint64_t session_id, const std::function<bool(const Job&)>& matches,
                  const absl::Status& status, bool dead, Callbacks& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Why a scored call may not wait, if so.
  absl::Status CheckMayWait(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool EndDueGroups(Callbacks& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  void TellQueue() ABSL_LOCKS_EXCLUDED(mu);
  // After what may have changed the memory of running scores.
  void TellScores();

  const EngineLimits limits;
  EngineObserver* const observer;
  const std::shared_ptr<ScoreBudget> scores;  // of all sessions

  Mutex mu;
  CondVar changed;  // a job came, a lane fell idle, or Stop
  IdempotencyStore store ABSL_GUARDED_BY(mu);
  std::deque<LaneBooks> lanes ABSL_GUARDED_BY(mu);  // by device
  JobQueue queue ABSL_GUARDED_BY(mu);
  GroupTable groups ABSL_GUARDED_BY(mu);
  CondVar groups_changed;  // a group's time may have come, or Stop
  std::unordered_map<uint64_t, Books> sessions ABSL_GUARDED_BY(mu);
  uint64_t next_job_id ABSL_GUARDED_BY(mu) = 1;
  bool draining ABSL_GUARDED_BY(mu) = false;
  bool sick ABSL_GUARDED_BY(mu) = false;
  bool stopped ABSL_GUARDED_BY(mu) = false;

  Mutex telling;  // keeps reports of the queue's length in order; taken before `mu`
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ENGINE_STATE_H_
