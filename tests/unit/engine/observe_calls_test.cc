// Observe and Rewind in the engine: what they add to, what they refuse, what other calls make of
// running scores, and where their memory goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <numeric>
#include <string>

#include "service/engine/engine_observer.h"
#include "service/policy/named_policies.h"
#include "tests/unit/engine/decode_replay.h"
#include "tests/unit/engine/open_stream.h"

namespace kvtriage {
namespace {

PolicySpec Named(std::string_view name, uint32_t tokens) {
  PolicySpec policy = *ExpandPolicy(name);
  policy.budget.kept_tokens = tokens;
  // The twenty of vatp would leave nothing to choose.
  policy.protect.sinks = std::min(policy.protect.sinks, 4u);
  return policy;
}

class ScoreWatcher : public EngineObserver {
 public:
  void OnStage(Stage, double) override {}
  void OnDecision(const Decision& decision) override {
    ++decisions;
    considered = decision.considered;
  }
  void OnBlend(const BlendDecision&) override {}
  void OnBlendWrite(const BlendWrite&) override {}
  void OnQueue(uint32_t) override {}
  void OnScores(uint64_t now) override { bytes = now; }
  void OnScoresDropped() override { ++dropped; }

  std::atomic<uint64_t> bytes{0};
  std::atomic<uint32_t> dropped{0}, decisions{0};
  std::atomic<double> considered{0};
};

class ObserveCall : public testing::Test {
 protected:
  explicit ObserveCall(DecodeShape shape = {.capacity = 128}, const EngineLimits& limits = {})
      : world_(limits, &watcher_, MakeCpuBackend(1)), worker_(world_, shape) {}

  // "reason field" of a refusal, "ok" otherwise.
  template <typename Spec>
  std::string Said(const Spec& spec) {
    const absl::Status status = worker_.TryRun(spec);
    if (status.ok()) return "ok";
    return ReasonOf(status) + " " + FieldOf(status);
  }
  // Appends rows and adds them, evicting if the budget says so.
  ObserveAnswer Grow(uint64_t id, uint32_t rows, const PolicySpec* policy = nullptr,
                     bool accumulate_only = false) {
    worker_.Append(id, rows);
    return worker_.Run(worker_.Observe(policy, {{id, rows, 0, 0, accumulate_only}}));
  }
  bool WaitScores(uint64_t bytes) {
    for (int i = 0; i < 2000 && watcher_.bytes != bytes; ++i) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return watcher_.bytes == bytes;
  }

  ScoreWatcher watcher_;
  EngineWorld world_;
  DecodeWorker worker_;
  const PolicySpec h2o_ = Named("h2o", 24);
};

TEST_F(ObserveCall, AnswersStepByStep) {
  worker_.Append(1, 30);
  worker_.Append(2, 10);
  const ObserveAnswer answer = worker_.Run(worker_.Observe(&h2o_, {{1, 30}, {2, 10}}));
  ASSERT_EQ(answer.steps.size(), 2u);
  EXPECT_EQ(answer.steps[0].sequence_id, 1u);
  ASSERT_TRUE(answer.steps[0].evicted.has_value());
  EXPECT_TRUE(answer.steps[0].started);
  EXPECT_FALSE(answer.steps[1].evicted.has_value());
  ASSERT_EQ(answer.evicted.sequences.size(), 1u);
  const SequenceOutcome& outcome = answer.evicted.sequences[0];
  EXPECT_EQ(outcome.kept, 24u);
  EXPECT_EQ(outcome.kv_revision, 1u);
  EXPECT_EQ(outcome.next_position, 30u);
  EXPECT_EQ(answer.policy.name, "h2o");
  worker_.CheckRows(1);
  worker_.CheckRows(2);
  EXPECT_EQ(watcher_.decisions, 1u) << "a sequence that is not cut back is no decision";
  EXPECT_EQ(watcher_.considered, 30);
  // Later calls need no policy and know the sequences.
  worker_.Append(1, 2);
  const ObserveAnswer later = worker_.Run(worker_.Observe(nullptr, {{1, 2}}));
  EXPECT_FALSE(later.steps[0].started);
  EXPECT_EQ(worker_.sequence(1).kv_revision, 2u);
}

// Sums of rows are sums of rows: a prefill in one call, in chunks, and a Compress keep the same.
TEST_F(ObserveCall, ChunksOneCallAndACompressKeepTheSame) {
  for (const char* name : {"h2o", "h2o+obc-joint", "h2o+drop", "vatp"}) {
    SCOPED_TRACE(name);
    const PolicySpec policy = Named(name, 48);
    EngineWorld world({}, nullptr, MakeCpuBackend(1));
    DecodeWorker worker(world, {.capacity = 128});
    for (const uint64_t id : {1, 2, 3}) {
      worker.SetLike(id, 1);
      worker.Append(id, 40);
    }
    worker.Run(worker.Observe(&policy, {{1, 40, 0, 0, true}}));
    for (const uint64_t id : {1, 2, 3}) worker.Append(id, 60);
    const ObserveAnswer chunked = worker.Run(worker.Observe(nullptr, {{1, 60}}));
    const ObserveAnswer whole = worker.Run(worker.Observe(&policy, {{2, 100}}));
    const CompressAnswer compressed = worker.Run(worker.Compress(policy, 3, 100));
    ASSERT_TRUE(chunked.steps[0].evicted && whole.steps[0].evicted);
    EXPECT_EQ(chunked.evicted.sequences[0].triage.kept, compressed.sequences[0].triage.kept);
    EXPECT_EQ(whole.evicted.sequences[0].triage.kept, compressed.sequences[0].triage.kept);
    EXPECT_EQ(whole.evicted.sequences[0].rewritten_bitmap,
              compressed.sequences[0].rewritten_bitmap);
  }
}

TEST_F(ObserveCall, RejectedDraftsLeaveNothingBehind) {
  for (const uint64_t id : {1, 2}) {
    worker_.SetLike(id, 1);
    worker_.Append(id, 24);
  }
  worker_.Run(worker_.Observe(&h2o_, {{1, 24}, {2, 24}}));
  for (uint32_t step = 0; step < 20; ++step) {
    // The second sequence is never told of the drafts of the first.
    worker_.Append(1, 5);
    worker_.Append(2, 1);
    const ObserveAnswer drafted = worker_.Run(worker_.Observe(nullptr, {{1, 5, 4}}));
    EXPECT_EQ(drafted.steps[0].draft_rows, 4u);
    EXPECT_FALSE(drafted.steps[0].evicted.has_value()) << "not while drafts are outstanding";
    EXPECT_EQ(Said(worker_.Rewind(1, 4)), "ok");
    worker_.TakeBack(1, 4);
    worker_.Append(1, 2);
    const ObserveAnswer accepted = worker_.Run(worker_.Observe(nullptr, {{1, 2}}));
    // The same rows in the same calls.
    worker_.Run(worker_.Observe(nullptr, {{2, 1, 0, 0, true}}));
    worker_.Append(2, 2);
    const ObserveAnswer plain = worker_.Run(worker_.Observe(nullptr, {{2, 2}}));
    ASSERT_TRUE(accepted.steps[0].evicted && plain.steps[0].evicted);
    ASSERT_EQ(accepted.evicted.sequences[0].triage.kept, plain.evicted.sequences[0].triage.kept);
  }
}

TEST_F(ObserveCall, DraftsThatAreNotTakenBackCountWithTheNextCall) {
  DecodeReplay replay(worker_, h2o_);
  worker_.Append(1, 24);
  worker_.Run(worker_.Observe(&h2o_, {{1, 24, 20}}));
  replay.Add(1, 0, 4);
  EXPECT_EQ(Said(worker_.Rewind(1, 5)), "ok");
  worker_.TakeBack(1, 5);
  worker_.Append(1, 9);
  replay.Add(1, 4, 28);
  ObserveSpec spec = worker_.Observe(nullptr, {{1, 9}});
  spec.act = {};
  const ObserveAnswer answer = worker_.Run(spec);
  ASSERT_TRUE(answer.steps[0].evicted.has_value());
  replay.Check(1, 28, answer.evicted.sequences[0].triage);
}

TEST_F(ObserveCall, RefusalsChangeNothing) {
  Grow(1, 20, &h2o_);
  worker_.Append(1, 4);
  struct Row {
    const char* name;
    std::function<void(ObserveSpec&)> change;
    const char* said;
  };
  const PolicySpec other = Named("h2o", 25), snapkv = Named("snapkv", 24);
  PolicySpec vatp_max = Named("vatp", 24);
  vatp_max.score.reduce = Reduce::kMax;
  const auto sequence = [](ObserveSpec& spec) -> SequenceSpec& { return spec.sequences[0]; };
  const Row kRows[] = {
      {"too few rows", [&](auto& s) { sequence(s).rows_count = 3; },
       "sequence_stale steps[0].sequence.physical_len"},
      {"rows behind", [&](auto& s) { sequence(s).physical_len = sequence(s).logical_len = 23; },
       "sequence_stale steps[0].sequence.physical_len"},
      {"revision", [&](auto& s) { sequence(s).kv_revision = 3; },
       "sequence_stale steps[0].sequence.kv_revision"},
      {"another policy", [&](auto& s) { s.policy = other; }, "policy_invalid policy"},
      {"a window", [&](auto& s) { s.policy = snapkv; }, "policy_invalid policy"},
      {"no policy yet", [&](auto& s) { sequence(s).sequence_id = 2; }, "field_missing policy"},
      {"vatp by maximum",
       [&](auto& s) {
         sequence(s).sequence_id = 2;
         s.policy = vatp_max;
       },
       "policy_invalid policy.parts.reduce"},
      {"trigger", [](auto& s) { s.steps[0].trigger = 23; }, "field_invalid steps[0].trigger"},
      {"more drafts than rows", [](auto& s) { s.steps[0].draft_rows = 5; },
       "field_invalid steps[0].draft_rows"},
      {"cache", [](auto& s) { s.cache_id += 1; }, "memory_unknown cache_id"},
      {"block", [&](auto& s) { sequence(s).table[0] = 1 << 20; },
       "block_out_of_range steps[0].sequence.table"},
      {"table", [&](auto& s) { sequence(s).table.resize(1); },
       "table_too_short steps[0].sequence.table"},
      {"rows of the inputs", [&](auto& s) { sequence(s).rows_begin = 511; },
       "field_invalid inputs.query.q.rows"},
      {"heads", [](auto& s) { s.inputs.q->heads = 3; }, "geometry_invalid inputs.query.q.heads"},
      {"no queries", [](auto& s) { s.inputs = {}; }, "policy_invalid inputs"},
      {"before RoPE", [](auto& s) { s.inputs.before_rope = true; },
       "stage_mismatch inputs.query.stage"},
      {"explicit rows finer than sets",
       [&](auto& s) {
         s.policy = h2o_;
         s.policy->granularity = Granularity::kPerLayer;
         sequence(s).sequence_id = 2;
         sequence(s).protect = {Granularity::kPerHead, {{0}, {0}, {0}, {0}}};
       },
       "policy_invalid steps[0].sequence.protect.granularity"},
  };
  const std::vector<std::byte> before = worker_.cache().lent().Copy();
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    ObserveSpec spec = worker_.Observe(nullptr, {{1, 4}});
    row.change(spec);
    EXPECT_EQ(Said(spec), row.said);
  }
  // The queries were written to the tail again and again; the rows are as they were.
  const std::vector<std::byte> after = worker_.cache().lent().Copy();
  EXPECT_TRUE(std::equal(before.begin(),
                         before.begin() + static_cast<int64_t>(worker_.cache().tail_offset()),
                         after.begin()));
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 4}})), "ok") << "none of them counted";
}

TEST_F(ObserveCall, ARefusedEvictionChangesNothing) {
  Grow(1, 20, &h2o_);
  worker_.Append(1, 8);
  ObserveSpec spec = worker_.Observe(nullptr, {{1, 8}});
  spec.sequences[0].sharing = Sharing::kUnknown;
  EXPECT_EQ(Said(spec), "block_shared steps[0].sequence.table");
  spec = worker_.Observe(nullptr, {{1, 8}});
  spec.act.ledger_slot = 77;
  EXPECT_EQ(Said(spec), "field_invalid act.in_place.ledger_slot");
  spec = worker_.Observe(nullptr, {{1, 8}});
  spec.sequences[0].protect = {Granularity::kPerSequence, {std::vector<int32_t>(25)}};
  std::iota(spec.sequences[0].protect.lists[0].begin(), spec.sequences[0].protect.lists[0].end(),
            0);
  EXPECT_EQ(Said(spec), "budget_too_small steps[0].sequence.protect");
  const ObserveAnswer answer = worker_.Run(worker_.Observe(nullptr, {{1, 8}}));
  EXPECT_TRUE(answer.steps[0].evicted.has_value());
  EXPECT_FALSE(answer.steps[0].started);
  worker_.CheckRows(1);
}

TEST_F(ObserveCall, RowsWithoutAUsableQueryAreRefused) {
  Grow(1, 20, &h2o_);
  worker_.Append(1, 1);
  const ObserveSpec spec = worker_.Observe(nullptr, {{1, 1}});
  const auto poison = [&](uint32_t row) {
    auto* const q =
        reinterpret_cast<float*>(worker_.cache().lent().data() + worker_.cache().tail_offset());
    q[uint64_t{row} * 4 * worker_.shape().dk] = std::nanf("");
    q[(uint64_t{row} * 4 + 1) * worker_.shape().dk] = std::nanf("");
  };
  poison(0);  // both query heads of KV head 0, layer 0
  EXPECT_EQ(Said(spec), "no_usable_row inputs");
  // With the next row it is one that was left out.
  worker_.Append(1, 1);
  ObserveSpec both = worker_.Observe(nullptr, {{1, 2}});
  poison(0);
  EXPECT_EQ(Said(both), "ok");
}

TEST_F(ObserveCall, ARepeatedCallCountsOnce) {
  worker_.Append(1, 20);
  const ObserveSpec spec = worker_.Observe(&h2o_, {{1, 20}});
  EXPECT_EQ(Said(spec), "ok");
  const CallResult again = Start(world_, worker_.session(), spec).Get();
  EXPECT_TRUE(again.replayed);
  worker_.Append(1, 2);
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 2, 2}})), "ok")
      << "twenty rows are known, not forty";
  const RewindSpec rewind = worker_.Rewind(1, 1);
  EXPECT_EQ(Said(rewind), "ok");
  EXPECT_TRUE(Start(world_, worker_.session(), rewind).Get().replayed);
  EXPECT_EQ(Said(worker_.Rewind(1, 1)), "ok");
  EXPECT_EQ(Said(worker_.Rewind(1, 1)), "rewind_too_far rows");
}

// ---- policies that are computed afresh ----------------------------------------------------------

TEST_F(ObserveCall, WindowsAreComputedFromTheRowsOfTheEvictingCall) {
  const PolicySpec snapkv = [] {
    PolicySpec policy = Named("snapkv", 24);
    policy.window.last = 6;
    policy.protect.recent = 6;
    return policy;
  }();
  worker_.SetLike(2, 1);
  worker_.Append(1, 20);
  EXPECT_TRUE(worker_.TryRun(worker_.Observe(&snapkv, {{1, 4, 0, 0, true}})).ok());
  worker_.Append(1, 10);
  ObserveSpec few = worker_.Observe(nullptr, {{1, 5}});
  EXPECT_EQ(Said(few), "field_invalid steps[0].sequence.rows_count");
  const ObserveAnswer answer = worker_.Run(worker_.Observe(nullptr, {{1, 6}}));
  worker_.Append(2, 30);
  const CompressAnswer compressed = worker_.Run(worker_.Compress(snapkv, 2, 6));
  ASSERT_TRUE(answer.steps[0].evicted.has_value());
  EXPECT_EQ(answer.evicted.sequences[0].triage.kept, compressed.sequences[0].triage.kept);
  // Drafts are counted, so that they can be taken back.
  worker_.Append(1, 3);
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 6, 3}})), "ok");
  EXPECT_EQ(Said(worker_.Rewind(1, 2)), "ok");
  worker_.TakeBack(1, 2);
  EXPECT_EQ(Said(worker_.Rewind(1, 2)), "rewind_too_far rows");
  worker_.Append(1, 1);
  EXPECT_TRUE(worker_.Run(worker_.Observe(nullptr, {{1, 6}})).steps[0].evicted.has_value());
}

TEST_F(ObserveCall, KeysAloneNeedNoInputs) {
  const PolicySpec streaming = Named("streaming", 16);
  worker_.Append(1, 20);
  ObserveSpec spec = worker_.Observe(&streaming, {{1, 0}});
  spec.inputs = {};
  const ObserveAnswer answer = worker_.Run(spec);
  ASSERT_TRUE(answer.steps[0].evicted.has_value());
  const std::vector<int32_t> expected = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  EXPECT_EQ(answer.evicted.sequences[0].triage.kept[0], expected);
}

// ---- what other calls make of running scores ----------------------------------------------------

TEST_F(ObserveCall, ACompressThatWritesMovesTheScoresAlong) {
  DecodeReplay replay(worker_, h2o_);
  Grow(1, 24, &h2o_);
  replay.Add(1, 0, 24);
  // Another policy cuts it: the sums follow its rows.
  const PolicySpec random = [] {
    PolicySpec policy = Named("streaming", 18);
    policy.score.scorer = Scorer::kRandom;
    policy.score.random_key = 5;
    return policy;
  }();
  CompressSpec cut = worker_.Compress(random, 1, 0);
  cut.inputs = {};
  const CallResult result = Start(world_, worker_.session(), cut).Get();
  ASSERT_TRUE(result.status.ok()) << result.status;
  const SequenceOutcome& outcome = CompressOf(result).sequences[0];
  replay.Follow(1, 24, outcome.triage);
  worker_.Follow(outcome);
  worker_.Append(1, 8);
  replay.Add(1, 18, 26);
  ObserveSpec spec = worker_.Observe(nullptr, {{1, 8}});
  spec.act = {};
  const ObserveAnswer answer = worker_.Run(spec);
  EXPECT_FALSE(answer.steps[0].started);
  ASSERT_TRUE(answer.steps[0].evicted.has_value());
  replay.Check(1, 26, answer.evicted.sequences[0].triage);
  EXPECT_EQ(watcher_.dropped, 0u);
}

TEST_F(ObserveCall, ListsOfDifferentLengthsDropTheScores) {
  Grow(1, 24, &h2o_);
  PolicySpec adaptive = Named("adakv", 12);
  adaptive.window.last = 4;
  adaptive.protect.recent = 4;
  adaptive.budget.adaptive_alpha = 0;
  const CompressAnswer answer = worker_.Run(worker_.Compress(adaptive, 1, 4));
  const auto& kept = answer.sequences[0].triage.kept;
  ASSERT_TRUE(std::any_of(kept.begin(), kept.end(),
                          [&](const auto& list) { return list.size() != kept[0].size(); }));
  EXPECT_EQ(watcher_.dropped, 1u);
  ObserveSpec spec = worker_.Observe(&h2o_, {{1, 1}});
  EXPECT_TRUE(Start(world_, worker_.session(), spec).Get().status.ok());
}

TEST_F(ObserveCall, AdviceMayBeFollowedOrNot) {
  for (const bool follows : {false, true}) {
    SCOPED_TRACE(follows);
    const uint64_t id = follows ? 2 : 1;
    DecodeReplay replay(worker_, h2o_);
    worker_.Append(id, 30);
    replay.Add(id, 0, 30);
    ObserveSpec spec = worker_.Observe(&h2o_, {{id, 30}});
    spec.act = {};
    const ObserveAnswer advice = worker_.Run(spec);
    ASSERT_TRUE(advice.steps[0].evicted.has_value());
    const SequenceOutcome& outcome = advice.evicted.sequences[0];
    uint32_t rows = 30;
    if (follows) {
      replay.Check(id, 30, outcome.triage);
      worker_.Drop(outcome);
      rows = 24;
    }
    worker_.Append(id, 4);
    replay.Add(id, rows, rows + 4);
    ObserveSpec next = worker_.Observe(nullptr, {{id, 4}});
    next.act = {};
    const ObserveAnswer answer = worker_.Run(next);
    EXPECT_FALSE(answer.steps[0].started);
    ASSERT_TRUE(answer.steps[0].evicted.has_value());
    replay.Check(id, rows + 4, answer.evicted.sequences[0].triage);
  }
}

TEST_F(ObserveCall, ACompressThatWritesWaitsForDrafts) {
  worker_.Append(1, 20);
  worker_.Run(worker_.Observe(&h2o_, {{1, 20, 3}}));
  const PolicySpec streaming = Named("streaming", 10);
  CompressSpec spec = worker_.Compress(streaming, 1, 0);
  spec.inputs = {};
  EXPECT_EQ(Said(spec), "draft_pending sequences[0].sequence_id");
  spec.act = {};
  spec.header.key = NewKey();
  EXPECT_EQ(Said(spec), "ok") << "advice writes nothing";
  OpenStream stream(world_, worker_.session(), [&] {
    CompressSpec open = worker_.Compress(streaming, 1, 0);
    open.header = {};
    open.inputs = {};
    return open;
  }());
  EXPECT_FALSE(stream.Opened());
  EXPECT_EQ(ReasonOf(stream.Ended().status), "draft_pending");
  EXPECT_EQ(Said(worker_.Rewind(1, 3)), "ok");
  worker_.TakeBack(1, 3);
  spec = worker_.Compress(streaming, 1, 0);
  spec.inputs = {};
  EXPECT_EQ(Said(spec), "ok");
}

// The queries of drafts are kept as they came: turned keys would not be those that they have met.
TEST_F(ObserveCall, ARerotateThatWritesWaitsForDrafts) {
  worker_.Append(1, 20);
  worker_.Run(worker_.Observe(&h2o_, {{1, 20, 3}}));
  const auto rerotate = [this] {
    RerotateSpec spec;
    const CompressSpec like = worker_.Compress(h2o_, 1, 0);
    spec.header = like.header;
    spec.cache_id = like.cache_id;
    spec.sequence = like.sequences[0];
    spec.sequence.positions.emplace().first = 0;
    spec.rows = static_cast<uint32_t>(spec.sequence.physical_len);
    spec.act.kind = ActKind::kInPlace;
    return spec;
  };
  EXPECT_EQ(Said(rerotate()), "draft_pending sequence.sequence_id");
  EXPECT_EQ(Said(worker_.Rewind(1, 3)), "ok");
  worker_.TakeBack(1, 3);
  EXPECT_EQ(Said(rerotate()), "ok");
}

TEST_F(ObserveCall, KeepStateGoesOnFromACompress) {
  for (const char* name : {"h2o", "h2o+obc-joint", "vatp"}) {
    for (const bool streamed : {false, true}) {
      SCOPED_TRACE(std::string(name) + (streamed ? " streamed" : ""));
      EngineWorld world({}, nullptr, MakeCpuBackend(1));
      DecodeWorker worker(world, {.capacity = 128});
      const PolicySpec policy = Named(name, 24);
      DecodeReplay replay(worker, policy);
      worker.Append(1, 40);
      replay.Add(1, 0, 40);
      CompressSpec spec = worker.Compress(policy, 1, 40);
      spec.keep_state = true;
      CompressSpec plain = spec;
      plain.act = {};
      plain.keep_state = false;
      plain.header.key = NewKey();
      const CompressAnswer expected = worker.Run(plain);
      SequenceOutcome outcome;
      if (streamed) {
        spec.header = {};
        OpenStream stream(world, worker.session(), spec);
        ASSERT_TRUE(stream.Opened());
        stream.Ready(1);
        stream.Ready(0);
        stream.HalfClose();
        const CallResult ended = stream.Ended();
        ASSERT_TRUE(ended.status.ok()) << ended.status;
        outcome = CompressOf(ended).sequences[0];
      } else {
        const CallResult result = Start(world, worker.session(), spec).Get();
        ASSERT_TRUE(result.status.ok()) << result.status;
        outcome = CompressOf(result).sequences[0];
      }
      EXPECT_EQ(outcome.triage.kept, expected.sequences[0].triage.kept) << "it changes no choice";
      replay.Check(1, 40, outcome.triage);
      worker.Follow(outcome);
      for (uint32_t step = 0; step < 12; ++step) {
        worker.Append(1, 3);
        replay.Add(1, 24, 27);
        const CallResult observed =
            Start(world, worker.session(), worker.Observe(step == 0 ? &policy : nullptr, {{1, 3}}))
                .Get();
        ASSERT_TRUE(observed.status.ok()) << observed.status;
        const auto& answer = std::get<ObserveAnswer>(observed.answer->body);
        EXPECT_FALSE(answer.steps[0].started);
        ASSERT_TRUE(answer.steps[0].evicted.has_value());
        replay.Check(1, 27, answer.evicted.sequences[0].triage);
        worker.Follow(answer.evicted.sequences[0]);
      }
      worker.CheckRows(1);
    }
  }
}

TEST_F(ObserveCall, KeptStateFixesWhatIsAddedUp) {
  worker_.Append(1, 40);
  CompressSpec spec = worker_.Compress(Named("h2o+drop", 24), 1, 40);
  spec.keep_state = true;
  CompressSpec one_layer = spec;
  one_layer.layers = {0};
  one_layer.inputs.q->layers = 1;
  one_layer.header.key = NewKey();
  EXPECT_EQ(Said(one_layer), "field_invalid keep_state");
  worker_.Run(spec);
  worker_.Append(1, 1);
  EXPECT_EQ(Said(worker_.Observe(&h2o_, {{1, 1}})), "policy_invalid policy");
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 1}})), "field_missing policy");
  const PolicySpec drop = Named("h2o+drop", 20);
  EXPECT_EQ(Said(worker_.Observe(&drop, {{1, 1}})), "ok");
}

TEST_F(ObserveCall, ReleasedSequencesBeginAnew) {
  Grow(1, 20, &h2o_);
  EXPECT_GT(watcher_.bytes, 0u);
  std::promise<Engine::Released> released;
  world_.engine().ReleaseSequences(worker_.session(), {1, 2},
                                   [&](Engine::Released answer) { released.set_value(answer); });
  const Engine::Released answer = released.get_future().get();
  EXPECT_EQ(answer.released, 1u);
  EXPECT_EQ(answer.already_gone, 1u);
  EXPECT_TRUE(WaitScores(0));
  EXPECT_EQ(Said(worker_.Rewind(1, 1)), "sequence_unknown sequence_id");
  EXPECT_TRUE(Grow(1, 2, &h2o_).steps[0].started);
}

TEST_F(ObserveCall, AHigherGenerationBeginsAnew) {
  Grow(1, 20, &h2o_);
  const uint64_t bytes = watcher_.bytes;
  worker_.sequence(1).generation = 1;
  worker_.Append(1, 2);
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 2}})), "field_missing policy");
  EXPECT_TRUE(worker_.Run(worker_.Observe(&h2o_, {{1, 2}})).steps[0].started);
  EXPECT_TRUE(WaitScores(bytes + 2 * 4 * sizeof(float))) << "the old scores went";
}

TEST_F(ObserveCall, SessionsTakeTheirScoresAlong) {
  Grow(1, 20, &h2o_);
  EXPECT_GT(watcher_.bytes, 0u);
  world_.End(worker_.session());
  EXPECT_TRUE(WaitScores(0));
}

// ---- memory -------------------------------------------------------------------------------------

class SmallBudget : public ObserveCall {
 protected:
  SmallBudget() : ObserveCall({.capacity = 128}, Limits()) {}
  static EngineLimits Limits() {
    EngineLimits limits;
    limits.score_bytes = 2600;  // four heads in two layers: 16 bytes a row
    return limits;
  }
};

TEST_F(SmallBudget, AnOutgrownOneIsRefusedAndNothingCounts) {
  const PolicySpec h2o = Named("h2o", 100);
  Grow(1, 60, &h2o);
  const uint64_t bytes = watcher_.bytes;
  worker_.Append(1, 60);
  const absl::Status status = worker_.TryRun(worker_.Observe(nullptr, {{1, 60, 0, 0, true}}));
  EXPECT_TRUE(status.ok()) << status;
  worker_.Append(2, 100);
  const ObserveSpec second = worker_.Observe(&h2o, {{2, 100}});
  const absl::Status refused = worker_.TryRun(second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused) + " " + FieldOf(refused), "quota_state steps[0]");
  EXPECT_EQ(GetErrorInfo(refused)->limit, 2600u);
  EXPECT_GT(watcher_.bytes, bytes);
  EXPECT_LE(watcher_.bytes, 2600u);
  CompressSpec seed = worker_.Compress(h2o, 2, 100);
  seed.keep_state = true;
  EXPECT_EQ(Said(seed), "quota_state sequences[0].sequence_id");
  // What is given back can be had again, with the same key too.
  std::promise<void> released;
  world_.engine().ReleaseSequences(worker_.session(), {1},
                                   [&](Engine::Released) { released.set_value(); });
  released.get_future().wait();
  EXPECT_EQ(Said(second), "ok");
}

// A Compress that brings no queries is decided by what Observe has added up: as one that brings the
// queries of all rows, for heads alone and for a set that they share.
TEST_F(ObserveCall, ACompressWithoutQueriesGoesByTheRunningScores) {
  for (const Granularity granularity : {Granularity::kPerHead, Granularity::kPerLayer}) {
    for (const char* name : {"h2o", "h2o+obc-joint", "vatp"}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(static_cast<int>(granularity)));
      PolicySpec policy = Named(name, 24);
      policy.granularity = granularity;
      EngineWorld world({}, nullptr, MakeCpuBackend(1));
      DecodeWorker worker(world, {.capacity = 128});
      for (const uint64_t id : {1, 2}) {
        worker.SetLike(id, 1);
        worker.Append(id, 40);
      }
      worker.Run(worker.Observe(&policy, {{1, 40, 0, 0, true}}));
      CompressSpec spec = worker.Compress(policy, 1, 0);
      spec.inputs = {};
      spec.from_running_scores = true;
      const CompressAnswer standing = worker.Run(spec);
      const CompressAnswer expected = worker.Run(worker.Compress(policy, 2, 40));
      EXPECT_EQ(standing.sequences[0].triage.kept, expected.sequences[0].triage.kept);
      worker.CheckRows(1);
      // The sums have come along.
      worker.Append(1, 10);
      const ObserveAnswer next = worker.Run(worker.Observe(nullptr, {{1, 10}}));
      EXPECT_FALSE(next.steps[0].started);
      EXPECT_TRUE(next.steps[0].evicted.has_value());
    }
  }
}

TEST_F(ObserveCall, ACompressWithoutQueriesNeedsRunningScoresThatFit) {
  const auto compress = [this](const PolicySpec& policy, uint64_t id) {
    CompressSpec spec = worker_.Compress(policy, id, 0);
    spec.inputs = {};
    spec.from_running_scores = true;
    return spec;
  };
  worker_.Append(1, 30);
  EXPECT_EQ(Said(compress(h2o_, 1)), "policy_invalid sequences[0].sequence_id") << "none at all";
  worker_.Run(worker_.Observe(&h2o_, {{1, 30, 2, 0, true}}));
  CompressSpec advice = compress(h2o_, 1);
  advice.act = {};
  EXPECT_EQ(Said(advice), "draft_pending sequences[0].sequence_id") << "advice would miss them";
  EXPECT_EQ(Said(worker_.Rewind(1, 2)), "ok");
  worker_.TakeBack(1, 2);
  EXPECT_EQ(Said(compress(Named("vatp", 24), 1)), "policy_invalid sequences[0].sequence_id");
  worker_.Append(1, 1);
  EXPECT_EQ(Said(compress(h2o_, 1)), "sequence_stale sequences[0].physical_len") << "unobserved";
  worker_.CheckRows(1);
  worker_.Run(worker_.Observe(nullptr, {{1, 1, 0, 0, true}}));
  EXPECT_EQ(Said(compress(h2o_, 1)), "ok");
}

// Two ranks that each observe their heads: a joined Compress without queries gives both one set,
// the one that a joined Compress with all queries gives.
TEST(ObserveRanks, AGroupGoesByTheRunningScoresOfAllRanks) {
  PolicySpec policy = Named("h2o", 24);
  policy.granularity = Granularity::kPerLayer;
  EngineWorld world({}, nullptr, MakeCpuBackend(1));
  std::vector<std::unique_ptr<DecodeWorker>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<DecodeWorker>(world, DecodeShape{.capacity = 128}));
  }
  // Rank r holds KV heads 2r and 2r + 1 of four; sequences 1 and 2 have the same tokens, and the
  // ranks' heads differ by what their tokens are.
  for (int rank = 0; rank < 2; ++rank) {
    DecodeWorker& worker = *ranks[static_cast<size_t>(rank)];
    for (const uint64_t id : {1, 2}) {
      worker.SetLike(id, static_cast<uint64_t>(rank) + 1);
      worker.Append(id, 40);
    }
    worker.Run(worker.Observe(&policy, {{1, 40, 0, 0, true}}));
  }
  const auto kept = [&](uint64_t id, bool standing) {
    std::vector<PendingCall> calls;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      CompressSpec spec = ranks[rank]->Compress(policy, id, standing ? 0 : 40);
      if (standing) spec.inputs = {};
      spec.from_running_scores = standing;
      GroupSpec group;
      group.key.fill(static_cast<uint8_t>(id));
      group.rank = rank;
      group.size = 2;
      group.first_kv_head = 2 * rank;
      group.total_kv_heads = 4;
      spec.group = group;
      calls.push_back(Start(world, ranks[rank]->session(), std::move(spec)));
    }
    std::vector<std::vector<std::vector<int32_t>>> sets;
    for (PendingCall& call : calls) {
      const CallResult result = call.Get();
      EXPECT_TRUE(result.status.ok()) << result.status;
      if (result.status.ok()) sets.push_back(CompressOf(result).sequences[0].triage.kept);
    }
    return sets;
  };
  const auto standing = kept(1, true), expected = kept(2, false);
  ASSERT_EQ(standing.size(), 2u);
  EXPECT_EQ(standing[0], standing[1]) << "one set for both";
  EXPECT_EQ(standing, expected);
}

class FewRecords : public ObserveCall {
 protected:
  FewRecords() : ObserveCall({.sequences = 5, .capacity = 64}, Limits()) {}

  static EngineLimits Limits() {
    EngineLimits limits;
    limits.sequences_per_session = 3;
    return limits;
  }
};

// Records with scores are never given up, so one call may not begin more than there is room for.
TEST_F(FewRecords, OneCallBeginsNoMoreThanThereAreRecords) {
  const PolicySpec h2o = Named("h2o", 40);
  for (const uint64_t id : {1, 2, 3, 4, 5}) worker_.Append(id, 8);
  worker_.Run(worker_.Observe(&h2o, {{1, 8}}));
  const uint64_t bytes = watcher_.bytes;
  EXPECT_EQ(Said(worker_.Observe(&h2o, {{2, 8}, {3, 8}, {4, 8}})),
            "quota_state steps[2].sequence.sequence_id");
  EXPECT_EQ(watcher_.bytes, bytes) << "nothing of it counts";
  worker_.Run(worker_.Observe(&h2o, {{2, 8}, {3, 8}}));
  CompressSpec seed = worker_.Compress(h2o, 4, 8);
  seed.keep_state = true;
  EXPECT_EQ(ReasonOf(worker_.TryRun(seed)), "quota_state");
  worker_.Append(1, 2);
  EXPECT_EQ(Said(worker_.Observe(nullptr, {{1, 2}})), "ok") << "those that have some go on";
}

// ---- failures -----------------------------------------------------------------------------------

TEST(ObserveFailures, AFailedMoveForgetsTheSequenceAndSparesTheOthers) {
  ScoreWatcher watcher;
  EngineWorld world({}, &watcher);
  DecodeWorker worker(world, {.capacity = 64});
  PolicySpec policy = Named("streaming", 8);
  for (const uint64_t id : {1, 2, 3}) worker.Append(id, 12);
  ObserveSpec spec =
      worker.Observe(&policy, {{1, 0, 0, 0, true}, {2, 0, 0, 0, true}, {3, 0, 0, 0, true}});
  spec.inputs = {};
  worker.Run(spec);
  // One move is two calls of Move where faults can be set.
  world.hooks().fail_move = 2 + world.hooks().moves;
  spec = worker.Observe(nullptr, {{1, 0}, {2, 0}, {3, 0}});
  spec.inputs = {};
  const absl::Status status = worker.TryRun(spec);
  EXPECT_EQ(ReasonOf(status) + " " + FieldOf(status), "move_failed steps[1].sequence.table");
  EXPECT_EQ(GetErrorInfo(status)->cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(ReasonOf(worker.TryRun(worker.Rewind(2, 1))), "sequence_unknown") << "forgotten";
  EXPECT_EQ(ReasonOf(worker.TryRun(worker.Rewind(1, 1))), "rewind_too_far") << "cut back";
  EXPECT_EQ(ReasonOf(worker.TryRun(worker.Rewind(3, 1))), "rewind_too_far") << "as before";
}

}  // namespace
}  // namespace kvtriage
