// Streams as clients use them: bad layers, half-closes, cancels, releases, ends of sessions,
// drains, repeats, and what each leaves in memory and in the ledger.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <future>
#include <optional>

#include "kernels/core/error.h"
#include "proto/wire/ledger_format.h"
#include "tests/support/wait_until.h"
#include "tests/unit/engine/gate.h"
#include "tests/unit/engine/open_stream.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

ErrorInfo InfoOf(const CallResult& result) {
  return GetErrorInfo(result.status).value_or(ErrorInfo());
}

class LayerCalls : public testing::Test {
 protected:
  ~LayerCalls() override { gate_.Open(); }

  CompressSpec Spec(uint64_t id = 1, uint32_t slot = 0) {
    CompressSpec spec = RandomSpec(cache_, {cache_.Sequence(id, 16, {0, 1, 2, 3})}, 5);
    ActInPlace(spec, slot);
    return spec;
  }
  // Of the one sequence, in the order of the layers.
  std::vector<wire::LedgerUnit> Units(uint32_t slot = 0) {
    const std::byte* const at = Slot(slot);
    wire::LedgerSlot head;
    std::memcpy(&head, at, sizeof head);
    std::vector<wire::LedgerUnit> states;
    for (uint32_t i = 0; i < head.units; ++i) {
      wire::LedgerUnitRecord unit;
      std::memcpy(&unit, at + head.units_off + i * sizeof unit, sizeof unit);
      states.push_back(static_cast<wire::LedgerUnit>(unit.state));
    }
    return states;
  }
  wire::LedgerSlot Head(uint32_t slot = 0) {
    wire::LedgerSlot head;
    std::memcpy(&head, Slot(slot), sizeof head);
    return head;
  }
  const std::byte* Slot(uint32_t slot) {
    const Ledger& ledger = *session_->ledger();
    if (ledger_ == nullptr) {
      ledger_ = static_cast<const std::byte*>(
          ::mmap(nullptr, ledger.bytes(), PROT_READ, MAP_SHARED, ledger.fd(), 0));
    }
    wire::LedgerHeader header;
    std::memcpy(&header, ledger_, sizeof header);
    return ledger_ + sizeof header + uint64_t{slot} * header.slot_bytes;
  }

  using U = wire::LedgerUnit;
  Gate gate_;
  EngineWorld world_;
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_{session_, {.heads = {2, 2, 2}}};
  const std::byte* ledger_ = nullptr;
};

TEST_F(LayerCalls, SlotIsOpenFromTheFirstMessageToTheEnd) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  EXPECT_EQ(Head().job_state, static_cast<uint32_t>(wire::LedgerJob::kOpen));
  EXPECT_EQ(Head().op, static_cast<uint32_t>(wire::LedgerOp::kCompressLayers));
  EXPECT_EQ(Units(), (std::vector<U>{U::kPending, U::kPending, U::kPending}));
  stream.Ready(1);
  stream.Done(1);
  EXPECT_EQ(Units(), (std::vector<U>{U::kPending, U::kDone, U::kPending}));
  EXPECT_EQ(Head().job_state, static_cast<uint32_t>(wire::LedgerJob::kOpen));
  stream.Ready(0);
  stream.Ready(2);
  stream.HalfClose();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "ok");
  EXPECT_EQ(Units(), (std::vector<U>{U::kDone, U::kDone, U::kDone}));
  EXPECT_EQ(Head().job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
  for (const auto& [layer, result] : stream.Done(3)) {
    EXPECT_EQ(CompressOf(result).sequences[0].kv_revision, 1u) << layer;
  }
  // One change of the sequence, however many layers.
  CompressSpec next = RandomSpec(cache_, {cache_.Sequence(1, 5, {0, 1})}, 3);
  next.sequences[0].logical_len = 16;
  next.sequences[0].total_dropped = 11;
  next.sequences[0].kv_revision = 1;
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, next).status), "ok");
}

TEST_F(LayerCalls, BadLayersEndTheStream) {
  struct Bad {
    std::vector<uint32_t> layers;
    const char *reason, *field;
    CacheState state;
    std::vector<U> units;
  };
  const Bad kBad[] = {
      {{3},
       "field_invalid",
       "layer.layer",
       CacheState::kUnharmed,
       {U::kUnharmed, U::kUnharmed, U::kUnharmed}},
      {{0, 0},
       "field_invalid",
       "layer.layer",
       CacheState::kSeeLedger,
       {U::kDone, U::kUnharmed, U::kUnharmed}},
      {{2, 0},
       "field_missing",
       "layer",
       CacheState::kSeeLedger,
       {U::kDone, U::kUnharmed, U::kDone}},
      {{},
       "field_missing",
       "layer",
       CacheState::kUnharmed,
       {U::kUnharmed, U::kUnharmed, U::kUnharmed}},
  };
  uint64_t id = 10;
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.reason);
    OpenStream stream(world_, session_, Spec(++id));
    ASSERT_TRUE(stream.Opened());
    for (size_t i = 0; i < bad.layers.size(); ++i) {
      stream.Ready(bad.layers[i]);
      if (i == 0 && bad.layers.size() > 1) stream.Done(1);
    }
    stream.HalfClose();
    const CallResult ended = stream.Ended();
    EXPECT_EQ(ReasonOf(ended.status), bad.reason);
    EXPECT_EQ(InfoOf(ended).field, bad.field);
    EXPECT_EQ(InfoOf(ended).cache_state, bad.state);
    EXPECT_EQ(Units(), bad.units);
    EXPECT_EQ(Head().job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
  }
  // A layer that was not announced, of a stream over some.
  CompressSpec some = Spec(9);
  some.layers = {0, 2};
  OpenStream stream(world_, session_, some);
  ASSERT_TRUE(stream.Opened());
  stream.Ready(1);
  EXPECT_EQ(InfoOf(stream.Ended()).got, 1u);
}

TEST_F(LayerCalls, WhatIsWrongWithAnyLayerShowsBeforeOneIsTouched) {
  const auto before = cache_.lent().Copy();
  const auto refused = [this](CompressSpec spec, std::string_view reason, std::string_view field) {
    OpenStream stream(world_, session_, std::move(spec));
    EXPECT_FALSE(stream.Opened());
    EXPECT_EQ(ReasonOf(stream.Ended().status), reason);
    EXPECT_EQ(InfoOf(stream.Ended()).field, field);
  };
  CompressSpec spec = Spec();
  spec.layers = {0, 3};
  refused(spec, "index_out_of_range", "open.layers_le");
  spec = Spec();
  spec.cache_id = 77;
  refused(spec, "memory_unknown", "open.cache_id");
  spec = Spec();
  spec.sequences[0].table[3] = 99;
  refused(spec, "block_out_of_range", "open.sequences[0].table");
  spec = Spec();
  spec.sequences[0].logical_len = 17;
  refused(spec, "sequence_stale", "open.sequences[0].physical_len");
  spec = Spec(1, 7);
  refused(spec, "field_invalid", "open.act.in_place.ledger_slot");
  EXPECT_EQ(cache_.lent().Copy() == before, true);
}

TEST_F(LayerCalls, WholeAnswerTooLargeIsRefusedBeforeAnyLayer) {
  EngineLimits limits;
  limits.max_response_bytes = 1000;
  EngineWorld small(limits);
  const auto session = small.Attach();
  WorkerCache cache(session, {.heads = {2, 2, 2}});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 15);
  OpenStream stream(small, session, spec);
  EXPECT_FALSE(stream.Opened());
  EXPECT_EQ(ReasonOf(stream.Ended().status), "result_too_large");
  EXPECT_EQ(InfoOf(stream.Ended()).limit, 1000u);

  // As bitmaps it fits: of each layer, and of the whole.
  spec = RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 11);
  spec.format = KeptFormat::kBitmap;
  OpenStream bits(small, session, spec);
  ASSERT_TRUE(bits.Opened());
  for (const uint32_t layer : {2u, 0u, 1u}) bits.Ready(layer);
  bits.Done(3);
  bits.HalfClose();
  const CallResult whole = bits.Ended();
  ASSERT_EQ(ReasonOf(whole.status), "ok");
  const SequenceOutcome& outcome = CompressOf(whole).sequences[0];
  ASSERT_TRUE(outcome.packed.has_value());
  WorkerCache twin(session_, {.heads = {2, 2, 2}});
  const CallResult once =
      RunCall(world_, session_, RandomSpec(twin, {twin.Sequence(9, 16, {0, 1, 2, 3})}, 11));
  const PackedKept expected = Pack(CompressOf(once).sequences[0].triage.kept, 16, spec.format);
  EXPECT_EQ(outcome.packed->counts, expected.counts);
  EXPECT_EQ(outcome.packed->bitmaps, expected.bitmaps);
  EXPECT_LE(whole.answer->bytes(), 1000u);
}

// Its first layer is scored while the others come; only one is on the lane at a time.
TEST_F(LayerCalls, LayersWaitInLineAndTheStreamIsOneJob) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  world_.hooks().on_score = gate_.hook();
  stream.Ready(0);
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_score = nullptr;
  stream.Ready(1);
  stream.Ready(2);
  EXPECT_EQ(world_.hooks().scores, 1);
  EXPECT_EQ(world_.engine().jobs_left(), 1u);
  // Three more jobs of the session fit beside it, and no fourth. Its sequence is the stream's.
  std::vector<PendingCall> others;
  for (uint32_t slot = 1; slot < 4; ++slot) {
    CompressSpec spec = RandomSpec(cache_, {cache_.Sequence(50 + slot, 8, {10, 11})}, 5);
    ActInPlace(spec, slot);
    others.push_back(Start(world_, session_, spec));
  }
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, RandomSpec(cache_, {}, 5)).status), "session_busy");
  gate_.Open();
  for (PendingCall& other : others) EXPECT_EQ(ReasonOf(other.Get().status), "ok");
  EXPECT_EQ(stream.Done(3).size(), 3u);
  stream.HalfClose();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "ok");
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
}

TEST_F(LayerCalls, OtherJobsOfItsSequencesWaitForItsEnd) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  CompressSpec same = Spec(1, 1), other = RandomSpec(cache_, {cache_.Sequence(2, 8, {8, 9})}, 5);
  PendingCall waits = Start(world_, session_, same);
  // Behind it in the queue, and of another sequence.
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, other).status), "ok");
  // Of that sequence too: its turn comes after the one that waits.
  CompressSpec both = RandomSpec(cache_, {cache_.Sequence(1, 16, {0, 1, 2, 3})}, 5);
  both.sequences.push_back(cache_.Sequence(3, 8, {8, 9}));
  PendingCall later = Start(world_, session_, both);
  for (const uint32_t layer : {0u, 1u, 2u}) stream.Ready(layer);
  stream.Done(3);
  EXPECT_FALSE(waits.Ready());
  EXPECT_FALSE(later.Ready());
  stream.HalfClose();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "ok");
  EXPECT_EQ(ReasonOf(waits.Get().status), "sequence_stale");  // it knows of no stream
  EXPECT_EQ(ReasonOf(later.Get().status), "sequence_stale");
}

TEST_F(LayerCalls, LedgerSlotBelongsToTheStream) {
  OpenStream stream(world_, session_, Spec(1, 3));
  ASSERT_TRUE(stream.Opened());
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, Spec(2, 3)).status), "ledger_slot_busy");
  OpenStream second(world_, session_, Spec(3, 3));
  EXPECT_EQ(ReasonOf(second.Ended().status), "ledger_slot_busy");
  stream.HalfClose();
  stream.Ended();
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, Spec(2, 3)).status), "ok");
}

TEST_F(LayerCalls, KeysAreResolvedWithCompress) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  const IdempotencyKey first = stream.Ready(0);
  const CallResult done = stream.Done(1)[0].second;
  const CallResult resolved = Resolve(world_, session_, first).Get();
  EXPECT_TRUE(resolved.replayed);
  EXPECT_EQ(resolved.answer, done.answer);
  // Running: the question waits.
  world_.hooks().on_score = gate_.hook();
  const IdempotencyKey second = stream.Ready(1);
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_score = nullptr;
  PendingCall during = Resolve(world_, session_, second);
  // Waiting in line: it never runs, and the stream with it.
  const IdempotencyKey third = stream.Ready(2);
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, third).Get().status), "key_dead");
  EXPECT_FALSE(during.Ready());
  gate_.Open();
  EXPECT_EQ(during.Get().answer, stream.Done(2)[1].second.answer);
  const CallResult ended = stream.Ended();
  EXPECT_EQ(ReasonOf(ended.status), "key_dead");
  EXPECT_EQ(InfoOf(ended).cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(Units(), (std::vector<U>{U::kDone, U::kDone, U::kUnharmed}));
}

TEST_F(LayerCalls, QueuedLayerThatIsResolvedEndsTheStream) {
  const auto holder = world_.Attach();
  WorkerCache held(holder, {}, 2);
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  world_.hooks().on_score = gate_.hook();
  PendingCall busy =
      Start(world_, holder, RandomSpec(held, {held.Sequence(77, 16, {12, 13, 14, 15})}, 3));
  ASSERT_TRUE(gate_.Reached());
  const IdempotencyKey queued = stream.Ready(0);
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, queued).Get().status), "key_dead");
  gate_.Open();
  busy.Get();
  const CallResult ended = stream.Ended();
  EXPECT_EQ(ReasonOf(ended.status), "key_dead");
  EXPECT_EQ(InfoOf(ended).cache_state, CacheState::kUnharmed);
}

// The stream broke off; a new one with the same bytes and keys finishes the work.
TEST_F(LayerCalls, DoneLayersAreNotDoneTwice) {
  WorkerCache whole(world_.Attach(), {.heads = {2, 2, 2}});
  const IdempotencyKey keys[] = {NewKey(), NewKey(), NewKey()};
  OpenStream broken(world_, session_, Spec());
  ASSERT_TRUE(broken.Opened());
  broken.Ready(1, keys[1]);
  broken.Done(1);
  broken.Drop(Error(ErrorReason::kKeyDead, "", "the client went away"));
  const CallResult ended = broken.Ended();
  EXPECT_EQ(ReasonOf(ended.status), "key_dead");
  EXPECT_EQ(InfoOf(ended).cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(Units(), (std::vector<U>{U::kUnharmed, U::kDone, U::kUnharmed}));

  OpenStream again(world_, session_, Spec());
  ASSERT_TRUE(again.Opened());
  EXPECT_EQ(Units(), (std::vector<U>{U::kPending, U::kPending, U::kPending}));
  const int moves = world_.hooks().moves;
  again.Ready(1, keys[1]);
  EXPECT_TRUE(again.Done(1)[0].second.replayed);
  EXPECT_EQ(world_.hooks().moves, moves);
  EXPECT_EQ(Units(), (std::vector<U>{U::kPending, U::kDone, U::kPending}));
  again.Ready(0, keys[0]);
  again.Ready(2, keys[2]);
  again.HalfClose();
  EXPECT_EQ(ReasonOf(again.Ended().status), "ok");
  EXPECT_EQ(Units(), (std::vector<U>{U::kDone, U::kDone, U::kDone}));
  EXPECT_EQ(CompressOf(again.Ended()).sequences[0].kv_revision, 1u);
  // A key of another layer is another request.
  OpenStream other(world_, session_, Spec(4));
  ASSERT_TRUE(other.Opened());
  other.Ready(2, keys[1]);
  EXPECT_EQ(ReasonOf(other.Ended().status), "key_reused");
}

TEST_F(LayerCalls, DroppedWhileALayerIsScored) {
  const auto before = cache_.lent().Copy();
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  world_.hooks().on_score = gate_.hook();
  stream.Ready(0);
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_score = nullptr;
  stream.Ready(1);
  stream.Drop(Error(ErrorReason::kDeadlineUnmeetable, "", "late"));
  EXPECT_FALSE(stream.HasEnded());
  gate_.Open();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "deadline_unmeetable");
  EXPECT_EQ(InfoOf(stream.Ended()).cache_state, CacheState::kUnharmed);
  EXPECT_EQ(world_.hooks().scores, 1);
  EXPECT_EQ(Units(), (std::vector<U>{U::kUnharmed, U::kUnharmed, U::kUnharmed}));
  EXPECT_EQ(cache_.lent().Copy() == before, true);
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
}

TEST_F(LayerCalls, FailedMoveDamagesItsLayerOnly) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  stream.Ready(2);
  stream.Done(1);
  world_.hooks().fail_move = world_.hooks().moves + 1;
  stream.Ready(0);
  const CallResult ended = stream.Ended();
  EXPECT_EQ(ReasonOf(ended.status), "move_failed");
  EXPECT_EQ(InfoOf(ended).cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(Units(), (std::vector<U>{U::kMoving, U::kUnharmed, U::kDone}));
}

TEST_F(LayerCalls, ReleaseEndsTheStream) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  stream.Ready(0);
  stream.Done(1);
  const auto release = [this](std::function<void(Engine::Released)> done) {
    world_.engine().ReleaseSequences(session_, {1}, std::move(done));
  };
  std::promise<Engine::Released> idle;
  release([&](Engine::Released counts) { idle.set_value(counts); });
  EXPECT_EQ(idle.get_future().get().released, 1u);
  EXPECT_EQ(ReasonOf(stream.Ended().status), "sequence_released");
  EXPECT_EQ(InfoOf(stream.Ended()).cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(Units(), (std::vector<U>{U::kDone, U::kUnharmed, U::kUnharmed}));

  // With a layer on the lane the release waits for it.
  OpenStream second(world_, session_, Spec());
  ASSERT_TRUE(second.Opened());
  world_.hooks().on_move = gate_.hook();
  second.Ready(1);
  ASSERT_TRUE(gate_.Reached());
  world_.hooks().on_move = nullptr;
  std::promise<Engine::Released> busy;
  std::atomic<bool> released{false};
  release([&](Engine::Released counts) {
    released = true;
    busy.set_value(counts);
  });
  second.Ready(2);
  EXPECT_FALSE(released);
  gate_.Open();
  EXPECT_EQ(busy.get_future().get().released, 1u);
  EXPECT_EQ(ReasonOf(second.Ended().status), "sequence_released");
  EXPECT_EQ(second.done(), 1u);
}

TEST_F(LayerCalls, EndOfTheSessionEndsIdleAndRunningStreams) {
  OpenStream idle(world_, session_, Spec(1)), running(world_, session_, Spec(2, 1));
  ASSERT_TRUE(idle.Opened());
  ASSERT_TRUE(running.Opened());
  world_.hooks().on_score = gate_.hook();
  running.Ready(0);
  ASSERT_TRUE(gate_.Reached());
  running.Ready(1);
  world_.sessions().End(session_, EndCause::kPeerDied);
  EXPECT_FALSE(running.HasEnded());
  gate_.Open();
  EXPECT_EQ(ReasonOf(running.Ended().status), "session_ended");
  EXPECT_EQ(ReasonOf(idle.Ended().status), "session_ended");
  EXPECT_TRUE(world_.sessions().WaitAllClosed(20'000));
  OpenStream late(world_, session_, Spec(3));
  EXPECT_EQ(ReasonOf(late.Ended().status), "session_ended");
  idle.Ready(0);  // to a stream that is over
  idle.HalfClose();
}

// Admitted work is not lost in a drain: an open stream goes on.
TEST_F(LayerCalls, DrainLetsOpenStreamsFinish) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  stream.Ready(0);
  world_.engine().StopAdmitting();
  EXPECT_FALSE(world_.engine().WaitIdle(0));
  OpenStream late(world_, session_, Spec(2, 1));
  EXPECT_EQ(ReasonOf(late.Ended().status), "draining");
  stream.Ready(1);
  stream.Ready(2);
  stream.HalfClose();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "ok");
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
}

TEST(LayerCallsEnd, EngineThatStopsEndsItsStreams) {
  std::optional<EngineWorld> world(std::in_place);
  const auto session = world->Attach();
  WorkerCache cache(session, {});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 5);
  OpenStream stream(*world, session, spec);
  ASSERT_TRUE(stream.Opened());
  world.reset();
  EXPECT_TRUE(stream.HasEnded());
}

// Between layers nothing is pinned: the worker may take its memory back, and the next layer says
// so.
TEST_F(LayerCalls, UnregisteredBetweenLayers) {
  OpenStream stream(world_, session_, Spec());
  ASSERT_TRUE(stream.Opened());
  stream.Ready(0);
  stream.Done(1);
  UnregisterSpec unregister;
  unregister.cache_ids = {cache_.id()};
  std::promise<void> promise;
  session_->memory().Unregister(
      unregister, 20'000, [&](const absl::StatusOr<UnregisterCounts>&) { promise.set_value(); });
  promise.get_future().get();
  stream.Ready(1);
  EXPECT_EQ(ReasonOf(stream.Ended().status), "memory_unknown");
  EXPECT_EQ(InfoOf(stream.Ended()).field, "open.cache_id");
  EXPECT_EQ(InfoOf(stream.Ended()).cache_state, CacheState::kSeeLedger);
}

}  // namespace
}  // namespace kvtriage
