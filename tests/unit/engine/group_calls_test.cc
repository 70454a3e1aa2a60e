// Ranks that decide together: one set for all, whatever the order; all of them move, or none.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "kernels/core/error.h"
#include "service/engine/group_table.h"
#include "tests/support/wait_until.h"
#include "tests/unit/engine/gate.h"
#include "tests/unit/engine/ledger_view.h"
#include "tests/unit/engine/rank_caches.h"

namespace kvtriage {
namespace {

using wire::LedgerUnit;

class GroupCalls : public testing::Test {
 protected:
  ~GroupCalls() override { gate_.Open(); }

  void Begin(uint32_t ranks, const EngineLimits& limits = {}) {
    world_.emplace(limits);
    ranks_.emplace(*world_, ranks);
    ranks_->SetScores(11);
  }
  CompressSpec Spec(uint32_t rank, uint32_t kept = 6) { return ranks_->Spec(rank, key_, kept); }
  // Starts the rank's call and waits until it waits for the others.
  PendingCall Waiting(uint32_t rank, CompressSpec spec,
                      absl::Duration deadline = absl::Seconds(30)) {
    const uint32_t before = world_->engine().waiting_ranks();
    PendingCall call = ranks_->Start(rank, std::move(spec), deadline);
    EXPECT_TRUE(WaitUntil([&] { return world_->engine().waiting_ranks() > before; }));
    return call;
  }
  PendingCall Waiting(uint32_t rank) { return Waiting(rank, Spec(rank)); }
  static std::string Reason(PendingCall& call) { return ReasonOf(call.Get().status); }

  // What the call should have done to its rank's memory.
  void ExpectMoved(uint32_t rank, const CallResult& result, const std::vector<std::byte>& before) {
    ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    const CompressAnswer& answer = CompressOf(result);
    const CompressSpec spec = Spec(rank);
    std::vector<std::byte> expected = before;
    WorkerCache& cache = ranks_->cache(rank);
    cache.Gather(answer, answer.sequences[0], spec.sequences[0], spec.sequences[0].table, cache,
                 before, expected);
    EXPECT_TRUE(cache.lent().Copy() == expected) << "rank " << rank;
  }

  Gate gate_;
  GroupKey key_ = NewGroupKey();
  std::optional<EngineWorld> world_;
  std::optional<RankCaches> ranks_;
};

TEST_F(GroupCalls, AllRanksKeepTheModelsSet) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Begin(3);
    ranks_->SetScores(seed);
    const auto before = ranks_->Memory();
    std::vector<PendingCall> calls;
    for (const uint32_t rank : {1u, 2u, 0u}) calls.push_back(ranks_->Start(rank, Spec(rank)));
    for (const size_t call : {2u, 0u, 1u}) {
      const uint32_t rank = call == 2 ? 0 : static_cast<uint32_t>(call) + 1;
      const CallResult result = calls[call].Get();
      ExpectMoved(rank, result, before[rank]);
      const TriageResult& triage = CompressOf(result).sequences[0].triage;
      EXPECT_EQ(triage.kept[0], ranks_->Best(0, 6));
      EXPECT_EQ(triage.kept[1], ranks_->Best(1, 6));
      const LedgerView ledger(*ranks_->session(rank)->ledger());
      EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kDone)));
      EXPECT_EQ(ledger.Counts(0), (std::vector<uint32_t>(2, 6)));
    }
    EXPECT_TRUE(world_->engine().WaitIdle(20'000));
  }
}

// In rank order row 0 adds up to (1 + 1e8) - 1e8 = 0; in any other order it would be 1.
TEST_F(GroupCalls, TheOrderOfArrivalDoesNotMatter) {
  const std::vector<std::vector<uint32_t>> orders = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
  for (const std::vector<uint32_t>& order : orders) {
    Begin(3);
    for (uint32_t head = 0; head < 6; ++head) {
      for (uint32_t row = 0; row < RankCaches::kRows; ++row) {
        ranks_->SetScore(0, head, row, row == 1 && head == 0 ? 0.5f : 0);
        ranks_->SetScore(1, head, row, 0);
      }
    }
    ranks_->SetScore(0, 0, 0, 1);
    ranks_->SetScore(0, 2, 0, 1e8f);
    ranks_->SetScore(0, 4, 0, -1e8f);
    key_ = NewGroupKey();
    std::vector<PendingCall> calls;
    for (const uint32_t rank : order) {
      CompressSpec spec = Spec(rank, 1);
      calls.push_back(rank == order.back() ? ranks_->Start(rank, spec) : Waiting(rank, spec));
    }
    for (PendingCall& call : calls) {
      const CallResult result = call.Get();
      ASSERT_EQ(ReasonOf(result.status), "ok");
      EXPECT_EQ(CompressOf(result).sequences[0].triage.kept[0], std::vector<int32_t>{1});
      EXPECT_EQ(CompressOf(result).sequences[0].triage.kept[1], std::vector<int32_t>{0});
    }
  }
}

TEST_F(GroupCalls, OneSetForAllLayersToo) {
  Begin(2);
  const auto call = [&](uint32_t rank) {
    CompressSpec spec = Spec(rank);
    spec.policy.granularity = Granularity::kPerSequence;
    return ranks_->Start(rank, spec);
  };
  PendingCall zero = call(0), one = call(1);
  const CallResult first = zero.Get(), second = one.Get();
  ASSERT_EQ(ReasonOf(first.status), "ok");
  EXPECT_EQ(CompressOf(first).sequences[0].triage.kept,
            CompressOf(second).sequences[0].triage.kept);
}

TEST_F(GroupCalls, SetsPerHeadAreEachRanksOwn) {
  Begin(2);
  const auto before = ranks_->Memory();
  const auto spec = [&](uint32_t rank) {
    CompressSpec own = Spec(rank);
    own.policy.granularity = Granularity::kPerHead;
    return own;
  };
  PendingCall zero = Waiting(0, spec(0));
  EXPECT_TRUE(ranks_->Memory() == before);
  PendingCall one = ranks_->Start(1, spec(1));
  const CallResult first = zero.Get(), second = one.Get();
  ExpectMoved(0, first, before[0]);
  ExpectMoved(1, second, before[1]);
  EXPECT_NE(CompressOf(first).sequences[0].triage.kept,
            CompressOf(second).sequences[0].triage.kept);
}

TEST_F(GroupCalls, AWaitingRankLeavesTheLaneFree) {
  Begin(2);
  PendingCall zero = Waiting(0);
  WorkerCache& cache = ranks_->cache(0);
  const CompressSpec other = RecencySpec(cache, {cache.Sequence(2, 8, {10, 11})}, 3);
  EXPECT_EQ(ReasonOf(RunCall(*world_, ranks_->session(0), other).status), "ok");
  EXPECT_EQ(world_->engine().RunningMs(), 0u);
  EXPECT_TRUE(WaitUntil([&] { return world_->engine().jobs_left() == 1; }));
  EXPECT_FALSE(zero.Ready());
  PendingCall one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(zero), "ok");
  EXPECT_EQ(Reason(one), "ok");
}

TEST_F(GroupCalls, AWaitingRankKeepsItsSequenceAndItsLedgerSlot) {
  Begin(2);
  PendingCall zero = Waiting(0);
  WorkerCache& cache = ranks_->cache(0);
  CompressSpec same = RecencySpec(cache, {cache.Sequence(1, 16, {5, 2, 9, 4})}, 3);
  PendingCall behind = Start(*world_, ranks_->session(0), same);
  CompressSpec slot = RecencySpec(cache, {cache.Sequence(2, 8, {10, 11})}, 3);
  ActInPlace(slot);
  EXPECT_EQ(ReasonOf(RunCall(*world_, ranks_->session(0), slot).status), "ledger_slot_busy");
  EXPECT_FALSE(behind.Ready());
  PendingCall one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(zero), "ok");
  EXPECT_EQ(Reason(behind), "sequence_stale");  // it was moved meanwhile
}

// PENDING on every rank until its own rows move.
TEST_F(GroupCalls, LedgersSayWhoseRowsMove) {
  Begin(2);
  world_->hooks().on_move = gate_.hook();
  PendingCall zero = ranks_->Start(0, Spec(0)), one = ranks_->Start(1, Spec(1));
  ASSERT_TRUE(gate_.Reached());
  const LedgerView first(*ranks_->session(0)->ledger()), second(*ranks_->session(1)->ledger());
  EXPECT_EQ(first.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kMoving)));
  EXPECT_EQ(second.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kPending)));
  EXPECT_EQ(second.slot(0).job_state, static_cast<uint32_t>(wire::LedgerJob::kOpen));
  gate_.Open();
  EXPECT_EQ(Reason(zero), "ok");
  EXPECT_EQ(Reason(one), "ok");
  EXPECT_EQ(second.slot(0).job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
}

TEST_F(GroupCalls, ARepeatGetsTheRanksOwnAnswer) {
  Begin(2);
  const CompressSpec mine = Spec(0);
  PendingCall zero = Waiting(0, mine);
  PendingCall repeat = ranks_->Start(0, mine);
  PendingCall one = ranks_->Start(1, Spec(1));
  const CallResult first = zero.Get(), second = repeat.Get();
  EXPECT_EQ(ReasonOf(first.status), "ok");
  EXPECT_TRUE(second.replayed);
  EXPECT_EQ(second.answer, first.answer);
  EXPECT_EQ(Reason(one), "ok");
  PendingCall late = ranks_->Start(0, mine);
  EXPECT_EQ(late.Get().answer, first.answer);
  EXPECT_EQ(world_->hooks().moves, 4);  // two layers on each rank
}

// ---- groups that end ----------------------------------------------------------------------------

TEST_F(GroupCalls, AMissingRankEndsTheOthers) {
  Begin(3);
  const auto before = ranks_->Memory();
  PendingCall zero = Waiting(0);
  PendingCall one = ranks_->Start(1, Spec(1), absl::Milliseconds(400));
  for (PendingCall* call : {&zero, &one}) {
    const CallResult result = call->Get();
    EXPECT_EQ(ReasonOf(result.status), "group_mismatch");
    EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kUnharmed);
  }
  EXPECT_TRUE(ranks_->Memory() == before);
  // Who comes late finds it over, and does not wait.
  EXPECT_EQ(ReasonOf(ranks_->Start(2, Spec(2)).Get().status), "group_mismatch");
  EXPECT_TRUE(world_->engine().WaitIdle(20'000));
}

TEST_F(GroupCalls, AfterAMismatchTheSameCallsMayMeetAgain) {
  Begin(2);
  CompressSpec mine = Spec(0), other = Spec(1, 5);
  PendingCall zero = Waiting(0, mine), one = ranks_->Start(1, other);
  EXPECT_EQ(Reason(zero), "group_mismatch");
  EXPECT_EQ(Reason(one), "group_mismatch");
  key_ = NewGroupKey();
  zero = ranks_->Start(0, Spec(0)), one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(zero), "ok");
  EXPECT_EQ(Reason(one), "ok");
}

struct Difference {
  const char* name;
  std::function<void(CompressSpec&)> change;
  const char* field;
};

void PrintTo(const Difference& difference, std::ostream* out) { *out << difference.name; }

class GroupDifference : public GroupCalls, public testing::WithParamInterface<Difference> {};

TEST_P(GroupDifference, EndsBothCallsUnharmed) {
  Begin(2);
  const auto before = ranks_->Memory();
  CompressSpec other = Spec(1);
  GetParam().change(other);
  PendingCall zero = Waiting(0), one = ranks_->Start(1, other);
  const CallResult first = zero.Get(), second = one.Get();
  EXPECT_EQ(ReasonOf(first.status), "group_mismatch") << first.status.ToString();
  EXPECT_EQ(ReasonOf(second.status), "group_mismatch") << second.status.ToString();
  EXPECT_EQ(GetErrorInfo(second.status)->field, GetParam().field);
  EXPECT_TRUE(ranks_->Memory() == before);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const RegionListing& region : ranks_->session(rank)->memory().ListRegions()) {
      EXPECT_EQ(region.pins, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GroupDifference,
    testing::Values(
        Difference{"budget", [](CompressSpec& s) { s.policy.budget.kept_tokens = 7; },
                   "policy.parts.budget"},
        Difference{"policy", [](CompressSpec& s) { s.policy.protect.sinks = 1; }, "policy"},
        Difference{"granularity",
                   [](CompressSpec& s) { s.policy.granularity = Granularity::kPerSequence; },
                   "policy"},
        Difference{
            "length",
            [](CompressSpec& s) { s.sequences[0].physical_len = s.sequences[0].logical_len = 15; },
            "sequences.physical_len"},
        Difference{"layers",
                   [](CompressSpec& s) {
                     s.layers = {1};
                     s.inputs.sums->layers = 1;
                   },
                   "layers_le"},
        Difference{"protected_rows",
                   [](CompressSpec& s) {
                     s.sequences[0].protect = {Granularity::kPerSequence, {{3}}};
                   },
                   "sequences.protect"},
        Difference{"act", [](CompressSpec& s) { s.act = {}; }, "act"},
        Difference{"heads_of_the_model", [](CompressSpec& s) { s.group->total_kv_heads = 5; },
                   "group.total_kv_heads"},
        Difference{"number_of_ranks", [](CompressSpec& s) { s.group->size = 3; }, "group.size"},
        Difference{"rank_twice", [](CompressSpec& s) { s.group->rank = 0; }, "group.rank"},
        Difference{"half_of_the_heads", [](CompressSpec& s) { s.group->first_kv_head = 1; },
                   "group.first_kv_head"},
        Difference{"no_rank_with_a_head", [](CompressSpec& s) { s.group->first_kv_head = 0; },
                   "group.first_kv_head"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(GroupCalls, ACallThatFailsKeepsItsOwnReason) {
  Begin(3);
  const auto before = ranks_->Memory();
  PendingCall zero = Waiting(0);
  CompressSpec bad = Spec(1);
  bad.sequences[0].table[1] = 99;
  PendingCall one = ranks_->Start(1, bad);
  EXPECT_EQ(Reason(one), "block_out_of_range");
  EXPECT_EQ(Reason(zero), "group_mismatch");
  PendingCall two = ranks_->Start(2, Spec(2));
  EXPECT_EQ(Reason(two), "group_mismatch");
  EXPECT_TRUE(ranks_->Memory() == before);
}

TEST_F(GroupCalls, WhatOneRankMayNotWriteNoneWrites) {
  Begin(2);
  const auto before = ranks_->Memory();
  CompressSpec bad = Spec(1);
  bad.sequences[0].sharing = Sharing::kUnknown;
  PendingCall zero = ranks_->Start(0, Spec(0)), one = ranks_->Start(1, bad);
  EXPECT_EQ(Reason(one), "block_shared");
  EXPECT_EQ(Reason(zero), "group_mismatch");
  EXPECT_TRUE(ranks_->Memory() == before);
  EXPECT_EQ(world_->hooks().moves, 0);
}

TEST_F(GroupCalls, AMoveThatFailsIsThatRanksAlone) {
  Begin(2);
  world_->hooks().fail_move = 2;  // the first layer of rank 1
  PendingCall zero = ranks_->Start(0, Spec(0)), one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(zero), "ok");
  const CallResult failed = one.Get();
  EXPECT_EQ(ReasonOf(failed.status), "move_failed");
  EXPECT_EQ(GetErrorInfo(failed.status)->cache_state, CacheState::kSeeLedger);
  const LedgerView ledger(*ranks_->session(1)->ledger());
  EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kMoving)));
}

TEST_F(GroupCalls, ACancelledRankEndsTheGroup) {
  Begin(3);
  const auto before = ranks_->Memory();
  PendingCall zero = Waiting(0), one = Waiting(1);
  one.cancelled->store(true);
  world_->engine().NoteCancelled();
  EXPECT_EQ(Reason(one), "key_dead");
  EXPECT_EQ(Reason(zero), "group_mismatch");
  EXPECT_TRUE(ranks_->Memory() == before);
}

TEST_F(GroupCalls, ACancelledRankThatIsStillWantedWaitsOn) {
  Begin(2);
  const CompressSpec mine = Spec(0);
  PendingCall zero = Waiting(0, mine), repeat = ranks_->Start(0, mine);
  zero.cancelled->store(true);
  world_->engine().NoteCancelled();
  PendingCall one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(repeat), "ok");
  EXPECT_EQ(Reason(one), "ok");
}

TEST_F(GroupCalls, ASessionsEndEndsItsGroups) {
  Begin(3);
  PendingCall zero = Waiting(0), one = Waiting(1);
  world_->sessions().End(ranks_->session(1), EndCause::kPeerDied);
  EXPECT_EQ(Reason(one), "session_ended");
  EXPECT_EQ(Reason(zero), "group_mismatch");
  EXPECT_TRUE(world_->engine().WaitIdle(20'000));
}

// Killed while its call is on the lane: the scores come too late.
TEST_F(GroupCalls, ASessionThatEndsWhileItScoresEndsItsGroup) {
  Begin(2);
  PendingCall zero = Waiting(0);
  world_->hooks().on_score = gate_.hook();
  PendingCall one = ranks_->Start(1, Spec(1));
  ASSERT_TRUE(gate_.Reached());
  world_->sessions().End(ranks_->session(1), EndCause::kPeerDied);
  ASSERT_TRUE(WaitUntil([&] { return ranks_->session(1)->ended(); }));
  gate_.Open();
  EXPECT_EQ(Reason(one), "session_ended");
  EXPECT_EQ(Reason(zero), "group_mismatch");
}

TEST_F(GroupCalls, AReleaseEndsTheGroup) {
  Begin(2);
  PendingCall zero = Waiting(0);
  std::promise<Engine::Released> released;
  world_->engine().ReleaseSequences(ranks_->session(0), {1},
                                    [&](Engine::Released result) { released.set_value(result); });
  EXPECT_EQ(released.get_future().get().released, 1u);
  EXPECT_EQ(Reason(zero), "sequence_released");
  PendingCall one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(one), "group_mismatch");
}

TEST_F(GroupCalls, AResolvedCallNeverRuns) {
  Begin(3);
  const CompressSpec mine = Spec(0);
  PendingCall zero = Waiting(0, mine), one = Waiting(1);
  PendingCall resolved = Resolve(*world_, ranks_->session(0), mine.header.key);
  EXPECT_EQ(Reason(resolved), "key_dead");
  EXPECT_EQ(Reason(zero), "key_dead");
  EXPECT_EQ(Reason(one), "group_mismatch");
  EXPECT_EQ(Reason(*std::make_unique<PendingCall>(ranks_->Start(0, mine))), "key_dead");
}

TEST_F(GroupCalls, ADrainEndsGroupsThatCannotBecomeWhole) {
  Begin(2);
  PendingCall zero = Waiting(0);
  world_->engine().StopAdmitting();
  EXPECT_EQ(Reason(zero), "group_mismatch");
  EXPECT_TRUE(world_->engine().WaitIdle(20'000));
  PendingCall one = ranks_->Start(1, Spec(1));
  EXPECT_EQ(Reason(one), "draining");
}

TEST_F(GroupCalls, ADrainLosesNoGroupWhoseRanksAreThere) {
  Begin(2);
  PendingCall zero = Waiting(0);
  world_->hooks().on_score = gate_.hook();
  PendingCall one = ranks_->Start(1, Spec(1));
  ASSERT_TRUE(gate_.Reached());
  world_->engine().StopAdmitting();
  gate_.Open();
  EXPECT_EQ(Reason(zero), "ok");
  EXPECT_EQ(Reason(one), "ok");
}

TEST_F(GroupCalls, TheEndOfTheEngineAnswersWaitingRanks) {
  Begin(2);
  PendingCall zero = Waiting(0);
  ranks_.reset();
  world_.reset();
  EXPECT_TRUE(zero.Ready());
}

TEST_F(GroupCalls, GroupsThatWaitAreCapped) {
  EngineLimits limits;
  limits.groups = 1;
  Begin(2, limits);
  PendingCall zero = Waiting(0);
  key_ = NewGroupKey();
  WorkerCache& cache = ranks_->cache(1);
  CompressSpec spec = Spec(1);
  EXPECT_EQ(ReasonOf(ranks_->Start(1, spec).Get().status), "quota_state");
  spec.group.reset();
  spec.sequences = {cache.Sequence(3, 16, {5, 2, 9, 4})};
  spec.sequences[0].rows_count = 1;
  EXPECT_EQ(ReasonOf(ranks_->Start(1, spec).Get().status), "ok");
}

TEST_F(GroupCalls, ScoresThatWaitAreCapped) {
  EngineLimits limits;
  limits.group_bytes = 100;  // two lists of 16 numbers are 128
  Begin(2, limits);
  EXPECT_EQ(ReasonOf(ranks_->Start(0, Spec(0)).Get().status), "quota_state");
  EXPECT_EQ(ReasonOf(ranks_->Start(1, Spec(1)).Get().status), "group_mismatch");
}

TEST_F(GroupCalls, AGroupOfOneIsAGroup) {
  Begin(1);
  const CallResult result = ranks_->Start(0, Spec(0)).Get();
  ASSERT_EQ(ReasonOf(result.status), "ok");
  EXPECT_EQ(CompressOf(result).sequences[0].triage.kept[0], ranks_->Best(0, 6));
}

TEST_F(GroupCalls, ABudgetOfAllRowsMovesNothing) {
  Begin(2);
  PendingCall zero = ranks_->Start(0, Spec(0, 16)), one = ranks_->Start(1, Spec(1, 16));
  const CallResult first = zero.Get();
  ASSERT_EQ(ReasonOf(first.status), "ok");
  EXPECT_TRUE(CompressOf(first).sequences[0].triage.noop);
  EXPECT_EQ(Reason(one), "ok");
  EXPECT_EQ(world_->hooks().moves, 0);
}

TEST_F(GroupCalls, HeadsBehindTheModelAreRefusedAtOnce) {
  Begin(2);
  CompressSpec spec = Spec(1);
  spec.group->first_kv_head = 3;
  const CallResult result = ranks_->Start(1, spec).Get();
  EXPECT_EQ(ReasonOf(result.status), "field_invalid");
  EXPECT_EQ(GetErrorInfo(result.status)->field, "group.total_kv_heads");
}

}  // namespace
}  // namespace kvtriage
