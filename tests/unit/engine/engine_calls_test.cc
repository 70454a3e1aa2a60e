// Calls as a client makes them: repeats, resolves, releases, ends of sessions, deadlines, cancels,
// drains, and what each leaves in memory and in the ledger.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/support/wait_until.h"
#include "tests/unit/engine/gate.h"
#include "tests/unit/engine/ledger_view.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

class Calls : public testing::Test {
 protected:
  ~Calls() override { gate_.Open(); }

  // A job that stays inside `where` until the gate opens.
  PendingCall HoldLane(std::function<void()>& where) {
    where = gate_.hook();
    PendingCall call =
        Start(world_, holder_,
              RandomSpec(holder_cache_, {holder_cache_.Sequence(77, 16, {12, 13, 14, 15})}, 3));
    EXPECT_TRUE(gate_.Reached());
    where = nullptr;
    return call;
  }
  CompressSpec InPlace(uint64_t id = 1, uint32_t kept = 5, uint32_t slot = 0) {
    CompressSpec spec = RandomSpec(cache_, {cache_.Sequence(id, 16, {0, 1, 2, 3})}, kept);
    ActInPlace(spec, slot);
    return spec;
  }

  Gate gate_;
  EngineWorld world_;
  std::shared_ptr<Session> session_ = world_.Attach();
  std::shared_ptr<Session> holder_ = world_.Attach();
  WorkerCache cache_{session_, {}};
  WorkerCache holder_cache_{holder_, {}, 2};
};

// The reply was lost, the client asks again. https://github.com/grpc/grpc/issues/9767
TEST_F(Calls, RetriedCallRunsOnce) {
  const CompressSpec spec = InPlace();
  const CallResult first = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(first.status), "ok");
  EXPECT_FALSE(first.replayed);
  const auto after = cache_.lent().Copy();
  const CallResult again = RunCall(world_, session_, spec);
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.answer, first.answer);
  EXPECT_EQ(cache_.lent().Copy() == after, true);
  CompressSpec stale = spec;
  stale.header.key = NewKey();
  const CallResult refused = RunCall(world_, session_, stale);
  ASSERT_EQ(ReasonOf(refused.status), "sequence_stale");
  EXPECT_EQ(GetErrorInfo(refused.status)->got, 16u);
  EXPECT_EQ(GetErrorInfo(refused.status)->limit, 5u);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec, 2).status), "key_reused");
  EXPECT_EQ(cache_.lent().Copy() == after, true);
}

TEST_F(Calls, RepeatWaitsForTheRunningCall) {
  world_.hooks().on_score = gate_.hook();
  const CompressSpec spec = InPlace();
  PendingCall first = Start(world_, session_, spec);
  ASSERT_TRUE(gate_.Reached());
  PendingCall repeat = Start(world_, session_, spec);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec, 2).status), "key_reused");
  EXPECT_FALSE(repeat.Ready());
  gate_.Open();
  const CallResult answer = first.Get(), again = repeat.Get();
  EXPECT_EQ(answer.answer, again.answer);
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(world_.hooks().scores, 1);
}

TEST_F(Calls, ResolveTakesAQueuedJobOut) {
  PendingCall held = HoldLane(world_.hooks().on_score);
  const CompressSpec spec = InPlace();
  const auto before = cache_.lent().Copy();
  PendingCall queued = Start(world_, session_, spec);
  PendingCall repeat = Start(world_, session_, spec);
  const CallResult resolved = Resolve(world_, session_, spec.header.key).Get();
  EXPECT_EQ(ReasonOf(resolved.status), "key_dead");
  EXPECT_EQ(GetErrorInfo(resolved.status)->cache_state, CacheState::kUnharmed);
  EXPECT_EQ(ReasonOf(queued.Get().status), "key_dead");
  EXPECT_EQ(ReasonOf(repeat.Get().status), "key_dead");
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "key_dead");
  gate_.Open();
  EXPECT_EQ(ReasonOf(held.Get().status), "ok");
  EXPECT_EQ(cache_.lent().Copy() == before, true);
}

TEST_F(Calls, ResolveBeforeDuringAndAfter) {
  const CompressSpec early = InPlace(1);
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, early.header.key).Get().status), "key_dead");
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, early).status), "key_dead");

  world_.hooks().on_score = gate_.hook();
  const CompressSpec spec = InPlace(2);
  PendingCall call = Start(world_, session_, spec);
  ASSERT_TRUE(gate_.Reached());
  PendingCall during = Resolve(world_, session_, spec.header.key);
  EXPECT_FALSE(during.Ready());
  gate_.Open();
  EXPECT_EQ(during.Get().answer, call.Get().answer);
  const CallResult after = Resolve(world_, session_, spec.header.key).Get();
  EXPECT_TRUE(after.replayed);
  // A key of another kind of call is not its answer.
  SelectRecomputeSpec other;
  other.header = {spec.header.key, true};
  EXPECT_EQ(ReasonOf(Start(world_, session_, other).Get().status), "key_reused");
}

TEST_F(Calls, ResolvedWhileScoringAndThenCancelledNeverRunsAgain) {
  world_.hooks().on_score = gate_.hook();
  const CompressSpec spec = InPlace();
  PendingCall call = Start(world_, session_, spec);
  ASSERT_TRUE(gate_.Reached());
  call.cancelled->store(true);
  PendingCall resolve = Resolve(world_, session_, spec.header.key);
  gate_.Open();
  EXPECT_EQ(ReasonOf(call.Get().status), "key_dead");
  EXPECT_EQ(ReasonOf(resolve.Get().status), "key_dead");
  world_.hooks().on_score = nullptr;
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "key_dead");
  EXPECT_EQ(world_.hooks().moves, 0);
}

TEST_F(Calls, CancelStopsAJobThatNobodyElseWaitsFor) {
  const auto before = cache_.lent().Copy();
  PendingCall held = HoldLane(world_.hooks().on_score);
  const CompressSpec spec = InPlace(1), wanted = InPlace(2, 5, 1);
  PendingCall dropped = Start(world_, session_, spec);
  PendingCall kept = Start(world_, session_, wanted);
  PendingCall repeat = Start(world_, session_, wanted);
  dropped.cancelled->store(true);
  kept.cancelled->store(true);
  gate_.Open();
  const CallResult result = dropped.Get();
  EXPECT_EQ(ReasonOf(result.status), "key_dead");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ReasonOf(kept.Get().status), "ok");  // its repeat wants the answer
  EXPECT_TRUE(repeat.Get().replayed);
  held.Get();
  // Not resolved: the same key may come again.
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "ok");
  EXPECT_EQ(cache_.lent().Copy() == before, false);
}

TEST_F(Calls, DeadlineInTheQueueAndWhileScoring) {
  PendingCall held = HoldLane(world_.hooks().on_score);
  PendingCall queued = Start(world_, session_, InPlace(), 1, absl::Milliseconds(20));
  EXPECT_FALSE(queued.Ready());
  std::this_thread::sleep_for(std::chrono::milliseconds(25));  // the deadline itself
  gate_.Open();
  CallResult result = queued.Get();
  EXPECT_EQ(ReasonOf(result.status), "deadline_unmeetable");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded);
  held.Get();
  EXPECT_EQ(ReasonOf(Start(world_, session_, InPlace(), 1, -absl::Seconds(1)).Get().status),
            "deadline_unmeetable");
  world_.hooks().on_score = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
  result = Start(world_, session_, InPlace(), 1, absl::Milliseconds(50)).Get();
  EXPECT_EQ(ReasonOf(result.status), "deadline_unmeetable");
  EXPECT_EQ(world_.hooks().moves, 0);
}

TEST_F(Calls, NothingStopsAMove) {
  world_.hooks().on_move = gate_.hook();
  const CompressSpec spec = InPlace();
  PendingCall call = Start(world_, session_, spec, 1, absl::Milliseconds(500));
  ASSERT_TRUE(gate_.Reached());
  call.cancelled->store(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(510));  // the deadline itself
  EXPECT_GE(world_.engine().RunningMs(), 500u);
  gate_.Open();
  EXPECT_EQ(ReasonOf(call.Get().status), "ok");
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
}

// The worker takes its blocks back while a job may still write.
// https://github.com/vllm-project/vllm/issues/52360
TEST_F(Calls, ReleaseReturnsWhenNoJobTouchesTheRows) {
  world_.hooks().on_move = gate_.hook();
  PendingCall running = Start(world_, session_, InPlace(1));
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_move = nullptr;
  PendingCall queued = Start(world_, session_, InPlace(2, 5, 1));
  std::promise<Engine::Released> promise;
  std::atomic<bool> released{false};
  world_.engine().ReleaseSequences(session_, {1, 2, 3}, [&](Engine::Released counts) {
    released = true;
    promise.set_value(counts);
  });
  EXPECT_EQ(ReasonOf(queued.Get().status), "sequence_released");
  EXPECT_FALSE(released);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, InPlace(1, 5, 2)).status), "sequence_released");
  gate_.Open();
  const Engine::Released counts = promise.get_future().get();
  EXPECT_TRUE(running.Ready());  // answered before the release
  EXPECT_EQ(counts.released, 2u);
  EXPECT_EQ(counts.already_gone, 1u);
  // The worker's new bytes stay.
  std::fill_n(cache_.lent().data(), cache_.lent().bytes(), std::byte{0xEE});
  const auto mine = cache_.lent().Copy();
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
  EXPECT_EQ(cache_.lent().Copy() == mine, true);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, InPlace(1)).status), "ok");  // a record no more
}

TEST_F(Calls, ReleaseOfIdleSequencesIsImmediate) {
  RunCall(world_, session_, InPlace(1));
  const auto release = [this](std::vector<uint64_t> ids) {
    std::promise<Engine::Released> promise;
    world_.engine().ReleaseSequences(session_, std::move(ids),
                                     [&](Engine::Released r) { promise.set_value(r); });
    return promise.get_future().get();
  };
  EXPECT_EQ(release({1, 9}).released, 1u);
  EXPECT_EQ(release({1, 9}).already_gone, 2u);
}

// Unregister waits for the job that has the memory.
// https://github.com/triton-inference-server/server/issues/3207
TEST_F(Calls, UnregisterWhileAJobRuns) {
  world_.hooks().on_score = gate_.hook();
  PendingCall running = Start(world_, session_, InPlace(1));
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_score = nullptr;
  std::promise<absl::Status> promise;
  std::atomic<bool> closed{false};
  UnregisterSpec unregister;
  unregister.region_ids = {cache_.lent().region_id()};
  session_->memory().Unregister(unregister, 20'000, [&](absl::StatusOr<UnregisterCounts> counts) {
    closed = true;
    promise.set_value(counts.status());
  });
  PendingCall late = Start(world_, session_, InPlace(2, 5, 1));
  EXPECT_FALSE(closed);
  gate_.Open();
  EXPECT_EQ(ReasonOf(running.Get().status), "ok");
  EXPECT_TRUE(promise.get_future().get().ok());
  EXPECT_EQ(ReasonOf(late.Get().status), "memory_unknown");
}

TEST_F(Calls, EndOfASessionEndsItsQueueAndWaitsForItsJob) {
  world_.hooks().on_move = gate_.hook();
  PendingCall running = Start(world_, session_, InPlace(1));
  ASSERT_TRUE(gate_.Reached());
  PendingCall queued = Start(world_, session_, InPlace(2, 5, 1));
  PendingCall other = Start(world_, holder_, RandomSpec(holder_cache_, {}, 3));
  world_.sessions().End(session_, EndCause::kLease);
  EXPECT_EQ(ReasonOf(queued.Get().status), "session_ended");
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, InPlace(3, 5, 2)).status), "session_ended");
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, NewKey()).Get().status), "session_ended");
  EXPECT_FALSE(running.Ready());
  gate_.Open();
  EXPECT_EQ(ReasonOf(running.Get().status), "ok");
  EXPECT_EQ(ReasonOf(other.Get().status), "ok");
  world_.hooks().on_move = nullptr;
  world_.sessions().End(holder_, EndCause::kLease);
  ASSERT_TRUE(world_.sessions().WaitAllClosed(10'000));
  const auto after = cache_.lent().Copy();
  std::promise<Engine::Released> gone;
  world_.engine().ReleaseSequences(session_, {1}, [&](Engine::Released r) { gone.set_value(r); });
  EXPECT_EQ(gone.get_future().get().already_gone, 1u);
  EXPECT_EQ(cache_.lent().Copy() == after, true);
}

TEST_F(Calls, LimitsOfOneSessionAndOfTheQueue) {
  EngineLimits limits;
  limits.lane_queue = 5;
  EngineWorld world(limits);
  Gate gate;
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(world.Attach());
  std::vector<std::unique_ptr<WorkerCache>> caches;
  for (const auto& session : sessions) {
    caches.push_back(std::make_unique<WorkerCache>(session, CacheShape{}));
  }
  WorkerCache& cache = *caches[0];
  const auto empty = [&](int i = 0) { return RecencySpec(*caches[i], {}, 1); };  // no rows
  world.hooks().on_score = gate.hook();
  std::vector<PendingCall> calls;
  calls.push_back(
      Start(world, sessions[0], RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 3)));
  ASSERT_TRUE(gate.Reached());
  for (int i = 0; i < 3; ++i) calls.push_back(Start(world, sessions[0], empty()));
  const CallResult busy = RunCall(world, sessions[0], empty());
  EXPECT_EQ(ReasonOf(busy.status), "session_busy");
  EXPECT_EQ(busy.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(GetErrorInfo(busy.status)->retry_after_ms, 2u);
  calls.push_back(Start(world, sessions[1], empty(1)));
  calls.push_back(Start(world, sessions[1], empty(1)));
  EXPECT_EQ(ReasonOf(RunCall(world, sessions[2], empty(2)).status), "queue_full");
  EXPECT_EQ(world.engine().jobs_left(), 6u);
  gate.Open();
  for (PendingCall& call : calls) EXPECT_EQ(ReasonOf(call.Get().status), "ok");
  EXPECT_TRUE(world.engine().WaitIdle(10'000));
}

TEST_F(Calls, LedgerSlotOfAJobInFlight) {
  PendingCall held = HoldLane(world_.hooks().on_score);
  PendingCall first = Start(world_, session_, InPlace(1, 5, 2));
  const CallResult second = RunCall(world_, session_, InPlace(2, 5, 2));
  EXPECT_EQ(ReasonOf(second.status), "ledger_slot_busy");
  EXPECT_EQ(FieldOf(second.status), "act.in_place.ledger_slot");
  gate_.Open();
  first.Get();
  CompressSpec next = InPlace(3, 5, 2);  // free as soon as the answer is there
  next.sequences[0].table = {4, 5, 6, 7};
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, next).status), "ok");
}

TEST_F(Calls, DrainFinishesWhatWasAdmitted) {
  PendingCall held = HoldLane(world_.hooks().on_score);
  const CompressSpec spec = InPlace(1);
  PendingCall queued = Start(world_, session_, spec);
  world_.engine().StopAdmitting();
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, InPlace(2, 5, 1)).status), "draining");
  EXPECT_EQ(ReasonOf(Start(world_, session_, RegisterSpec{{NewKey(), false}, {}, {}}).Get().status),
            "draining");
  EXPECT_EQ(world_.engine().jobs_left(), 2u);
  EXPECT_FALSE(world_.engine().WaitIdle(1));
  gate_.Open();
  EXPECT_EQ(ReasonOf(queued.Get().status), "ok");
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
  EXPECT_EQ(world_.engine().jobs_left(), 0u);
  // Sessions may still resolve and release.
  EXPECT_TRUE(Resolve(world_, session_, spec.header.key).Get().replayed);
}

TEST_F(Calls, SickDeviceTakesNothingNew) {
  world_.engine().MarkSick();
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, InPlace()).status), "device_sick");
}

TEST_F(Calls, EngineThatGoesRefusesItsQueue) {
  auto gate = std::make_unique<Gate>();
  auto world = std::make_unique<EngineWorld>();
  auto session = world->Attach();
  auto cache = std::make_unique<WorkerCache>(session, CacheShape{});
  world->hooks().on_score = gate->hook();
  PendingCall running =
      Start(*world, session, RandomSpec(*cache, {cache->Sequence(1, 16, {0, 1, 2, 3})}, 3));
  ASSERT_TRUE(gate->Reached());
  PendingCall queued =
      Start(*world, session, RandomSpec(*cache, {cache->Sequence(2, 16, {0, 1, 2, 3})}, 3));
  std::thread opener([&] {
    EXPECT_EQ(ReasonOf(queued.Get().status), "session_ended");
    gate->Open();
  });
  cache.reset();  // no session outlives the table
  session.reset();
  world.reset();
  opener.join();
  EXPECT_EQ(ReasonOf(running.Get().status), "ok");
}

TEST_F(Calls, RoundRobinOverSessions) {
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<std::unique_ptr<WorkerCache>> caches;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(world_.Attach());
    caches.push_back(std::make_unique<WorkerCache>(sessions.back(), CacheShape{}));
  }
  PendingCall held = HoldLane(world_.hooks().on_score);
  std::vector<PendingCall> calls;
  for (int s = 0; s < 3; ++s) {
    for (int i = 0; i < 3; ++i) {
      calls.push_back(Start(world_, sessions[s],
                            RandomSpec(*caches[s], {caches[s]->Sequence(1, 16, {0, 1, 2, 3})}, 3)));
    }
  }
  gate_.Open();
  std::vector<uint64_t> queue_time;
  for (PendingCall& call : calls) queue_time.push_back(call.Get().answer->timing.queue);
  // The n-th job of every session runs before the next one of any.
  for (int i = 0; i + 1 < 3; ++i) {
    for (int s = 0; s < 3; ++s) {
      for (int t = 0; t < 3; ++t)
        EXPECT_LE(queue_time[3 * s + i], queue_time[3 * t + i + 1] + 1000);
    }
  }
}

TEST_F(Calls, RegisterIsIdempotentToo) {
  UniqueFd fd = MakeLentMemfd(8192);
  RegisterSpec spec;
  spec.header.key = NewKey();
  spec.regions.push_back(
      {session_->memory().AddTicket(Duplicate(fd)).value(), 0, 8192, true, 0, 0, ""});
  const CallResult first = Start(world_, session_, spec).Get();
  ASSERT_EQ(ReasonOf(first.status), "ok");
  const auto& ids = std::get<RegisteredIds>(first.answer->body);
  ASSERT_EQ(ids.region_ids.size(), 1u);
  const CallResult again = Start(world_, session_, spec).Get();  // the ticket is used up
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(std::get<RegisteredIds>(again.answer->body).region_ids, ids.region_ids);
  EXPECT_EQ(ReasonOf(Start(world_, session_, spec, 2).Get().status), "key_reused");
  RegisterSpec resolve;
  resolve.header = {spec.header.key, true};
  EXPECT_TRUE(Start(world_, session_, resolve).Get().replayed);
  RegisterSpec bad = spec;
  bad.header.key = NewKey();
  EXPECT_EQ(ReasonOf(Start(world_, session_, bad).Get().status), "ticket_unknown");
  resolve.header = {bad.header.key, true};
  EXPECT_EQ(ReasonOf(Start(world_, session_, resolve).Get().status), "key_dead");
}

using wire::LedgerUnit;

TEST_F(Calls, LedgerTellsWhatBecameOfEverySequence) {
  LedgerView ledger(*session_->ledger());
  CompressSpec spec = RandomSpec(cache_,
                                 {cache_.Sequence(1, 16, {0, 1, 2, 3}), cache_.Sequence(2, 3, {4}),
                                  cache_.Sequence(3, 9, {5, 6, 7})},
                                 5);
  ActInPlace(spec, 3);
  const CallResult result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "ok");
  const wire::LedgerSlot& slot = ledger.slot(3);
  EXPECT_EQ(slot.job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
  EXPECT_EQ(slot.job_id, result.answer->job_id);
  EXPECT_TRUE(std::equal(spec.header.key.begin(), spec.header.key.end(), slot.idempotency_key));
  EXPECT_EQ(ledger.States(3),
            (std::vector<LedgerUnit>{LedgerUnit::kDone, LedgerUnit::kDone, LedgerUnit::kUnharmed,
                                     LedgerUnit::kUnharmed, LedgerUnit::kDone, LedgerUnit::kDone}));
  EXPECT_EQ(ledger.Counts(3), (std::vector<uint32_t>{5, 5, 5, 5, 0, 0, 0, 0, 5, 5, 5, 5}));
  EXPECT_EQ(ledger.Units(3)[4].sequence_id, 3u);
  EXPECT_EQ(ledger.Units(3)[5].layer, 1u);
  EXPECT_EQ(ledger.slot(0).job_state, 0u);
}

TEST_F(Calls, FailedMoveIsToldByTheLedger) {
  LedgerView ledger(*session_->ledger());
  CompressSpec spec =
      RandomSpec(cache_,
                 {cache_.Sequence(1, 16, {0, 1, 2, 3}), cache_.Sequence(2, 3, {4}),
                  cache_.Sequence(3, 9, {5, 6, 7}), cache_.Sequence(4, 9, {8, 9, 10})},
                 5);
  ActInPlace(spec);
#ifdef KVTRIAGE_FAULT_POINTS
  world_.hooks().fail_move = 2;  // two calls of Move per sequence
#else
  world_.hooks().fail_move = 1;
#endif
  const auto before = cache_.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "move_failed");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>{
                                  LedgerUnit::kDone, LedgerUnit::kDone, LedgerUnit::kUnharmed,
                                  LedgerUnit::kUnharmed, LedgerUnit::kMoving, LedgerUnit::kMoving,
                                  LedgerUnit::kUnharmed, LedgerUnit::kUnharmed}));
  EXPECT_EQ(ledger.slot(0).job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
  const auto after = cache_.lent().Copy();
  for (uint32_t l = 0; l < 2; ++l) {
    for (uint32_t h = 0; h < 2; ++h) {
      for (uint64_t slot = 0; slot < 12; ++slot) {
        EXPECT_EQ(cache_.Row(before, l, h, {8, 9, 10}, slot),
                  cache_.Row(after, l, h, {8, 9, 10}, slot));
      }
    }
  }
  // The error is stored: the key never runs again.
  const CallResult again = RunCall(world_, session_, spec);
  EXPECT_EQ(ReasonOf(again.status), "move_failed");
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, spec.header.key).Get().status), "move_failed");
  EXPECT_EQ(cache_.lent().Copy() == after, true);
  // The sequence that is done is known by its new length, the damaged one is forgotten.
  CompressSpec next = InPlace(1);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, next).status), "sequence_stale");
  next = RandomSpec(cache_, {cache_.Sequence(3, 9, {5, 6, 7})}, 5);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, next).status), "ok");
}

TEST_F(Calls, FailedCopyLeavesEverythingAsItWas) {
  WorkerCache target(session_, {}, 3);
  CompressSpec spec = RandomSpec(cache_, {cache_.Sequence(1, 16, {0, 1, 2, 3})}, 5);
  spec.sequences[0].destination = {0, 1};
  ActCopy(spec, target.id());
  world_.hooks().fail_move = 0;
  const auto before = cache_.lent().Copy();
  const CallResult failed = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(failed.status), "move_failed");
  EXPECT_EQ(GetErrorInfo(failed.status)->cache_state, CacheState::kUnharmed);
  EXPECT_EQ(cache_.lent().Copy() == before, true);
  const CallResult again = RunCall(world_, session_, spec);  // the key is free
  ASSERT_EQ(ReasonOf(again.status), "ok");
  EXPECT_EQ(CompressOf(again).sequences[0].kv_revision, 1u);
}

// Two threads with one key: one effect, whatever the order.
TEST_F(Calls, RacingRepeatsAndResolvesHaveOneEffect) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CompressSpec spec = InPlace(100 + seed);
    const int before = world_.hooks().moves;
    CallResult called, repeated, resolved;
    std::thread a([&] { called = RunCall(world_, session_, spec); });
    std::thread b([&] {
      for (uint64_t i = 0; i < seed % 7 * 50; ++i) std::this_thread::yield();
      if (seed % 2 == 0) repeated = RunCall(world_, session_, spec);
      resolved = Resolve(world_, session_, spec.header.key).Get();
    });
    a.join();
    b.join();
    const int moves = world_.hooks().moves - before;
    const bool ran = ReasonOf(resolved.status) == "ok";
    EXPECT_EQ(moves > 0, ran);
    EXPECT_EQ(ReasonOf(called.status), ran ? "ok" : "key_dead");
    if (ran) {
      EXPECT_EQ(resolved.answer, called.answer);
      if (seed % 2 == 0) {
        EXPECT_EQ(repeated.answer, called.answer);
      }
    }
    EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), ran ? "ok" : "key_dead");
    EXPECT_EQ(world_.hooks().moves - before, moves);
  }
}

}  // namespace
}  // namespace kvtriage
