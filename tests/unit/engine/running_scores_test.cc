// The parts of running scores alone: memory, gathering, folding, drafts, rewinds.
#include "service/engine/running_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "kernels/core/splitmix64.h"
#include "service/engine/draft_rows.h"
#include "service/engine/fold_rows.h"
#include "service/engine/job.h"
#include "service/engine/rewind.h"
#include "tests/unit/engine/decode_worker.h"

namespace kvtriage {
namespace {

TEST(ScoreBudget, LeasesAddUpAndAreGivenBack) {
  const auto budget = std::make_shared<ScoreBudget>(100);
  ScoreLease a(budget);
  EXPECT_TRUE(a.Resize(60));
  {
    ScoreLease b(budget);
    EXPECT_FALSE(b.Resize(41));
    EXPECT_EQ(b.bytes(), 0u);
    EXPECT_TRUE(b.Resize(40));
    EXPECT_FALSE(a.Resize(61));
    EXPECT_TRUE(a.Resize(10)) << "less always goes";
    EXPECT_TRUE(a.Resize(60));
    EXPECT_EQ(budget->used(), 100u);
  }
  EXPECT_EQ(budget->used(), 60u);
  EXPECT_FALSE(a.Resize(UINT64_MAX)) << "no overflow";
  EXPECT_TRUE(a.Resize(0));
  EXPECT_EQ(budget->used(), 0u);
}

TriageResult Lists(std::vector<std::vector<int32_t>> kept, uint32_t layers, uint32_t heads,
                   bool shared = false) {
  TriageResult result;
  result.kept = std::move(kept);
  for (uint32_t l = 0; l < layers; ++l) {
    TriageLayerOutcome layer;
    layer.first_list = shared ? l : l * heads;
    layer.list_step = shared ? 0 : 1;
    result.layers.push_back(layer);
  }
  return result;
}

TEST(GatherSums, FollowsTheListOfEveryHead) {
  RowSums sums;
  sums.columns = 4;
  sums.layers = {{2, {1, 2, 3, 4, 10, 20, 30, 40}}, {2, {5, 6, 7, 8, 50, 60, 70, 80}}};
  const auto gathered = GatherSums(sums, Lists({{0, 3}, {1, 2}, {2, 3}, {0, 5}}, 2, 2));
  ASSERT_NE(gathered, nullptr);
  EXPECT_EQ(gathered->columns, 2u);
  EXPECT_EQ(gathered->layers[0].sums, (std::vector<float>{1, 4, 20, 30}));
  EXPECT_EQ(gathered->layers[1].sums, (std::vector<float>{7, 8, 50, 0})) << "row 5 has no sum yet";
}

TEST(GatherSums, SharedListsServeEveryHead) {
  RowSums sums;
  sums.columns = 3;
  sums.layers = {{2, {1, 2, 3, 10, 20, 30}}};
  const auto gathered = GatherSums(sums, Lists({{0, 2}}, 1, 2, true));
  ASSERT_NE(gathered, nullptr);
  EXPECT_EQ(gathered->layers[0].sums, (std::vector<float>{1, 3, 10, 30}));
  sums.layers = {{1, {1, 2, 3}}};
  EXPECT_EQ(GatherSums(sums, Lists({{0, 2}}, 1, 2, true))->layers[0].sums,
            (std::vector<float>{1, 3}));
  EXPECT_EQ(GatherSums(sums, Lists({{0, 2}, {0, 1}}, 1, 2)), nullptr)
      << "one sum for two heads that part";
}

TEST(GatherSums, GivesUpWhereOneSequenceCannotGoOn) {
  RowSums sums;
  sums.columns = 3;
  sums.layers = {{2, {1, 2, 3, 10, 20, 30}}, {2, {1, 2, 3, 10, 20, 30}}};
  EXPECT_EQ(GatherSums(sums, Lists({{0, 2}, {0, 1}, {1, 2}, {0}}, 2, 2)), nullptr);
  EXPECT_EQ(GatherSums(sums, Lists({{0, 2}, {0, 1}}, 1, 2)), nullptr) << "a layer is missing";
}

TEST(Settled, GoesOnWithWhatTheWorkerMadeOfAnAnswer) {
  auto followed = std::make_shared<RunningScores>();
  followed->dropped = 30;
  auto scores = std::make_shared<RunningScores>();
  scores->dropped = 10;
  scores->followed = followed;
  const std::shared_ptr<const RunningScores> known = scores;
  EXPECT_EQ(Settled(known, 10), known);
  EXPECT_EQ(Settled(known, 30), followed);
  EXPECT_EQ(Settled(known, 20), nullptr);
  EXPECT_EQ(Settled(nullptr, 20), nullptr);
}

// Rewind leaves the very sums that were there, and everything else as if the rows had not come.
TEST(Rewind, TouchesNoSum) {
  const auto budget = std::make_shared<ScoreBudget>(1 << 20);
  auto table = std::make_shared<SequenceTable>(8, budget);
  SequenceSpec call;
  call.sequence_id = 7;
  call.logical_len = call.physical_len = 20;
  table->Record(call, SequenceEffect::kNone, 20, PositionEffect::kSame);
  auto scores = std::make_shared<RunningScores>();
  scores->lease = table->NewLease();
  auto sums = std::make_shared<RowSums>();
  sums->columns = 16;
  sums->layers = {{1, std::vector<float>(16, 0.1f)}};
  scores->sums = sums;
  auto draft = std::make_shared<DraftRows>();
  draft->rows = 4;
  scores->draft = draft;
  scores->drafts = 4;
  scores->rows = 20;
  table->SetScores(7, scores);

  Job job;
  job.sequences = table;
  Answer answer;
  const auto rewind = [&](uint64_t id, uint32_t generation, uint32_t rows) {
    RewindSpec spec;
    spec.sequence_id = id;
    spec.generation = generation;
    spec.rows = rows;
    job.spec = spec;
    return RunRewind(job, answer);
  };
  EXPECT_EQ(ReasonOf(rewind(7, 0, 5)), "rewind_too_far");
  EXPECT_EQ(ReasonOf(rewind(8, 0, 1)), "sequence_unknown");
  EXPECT_EQ(ReasonOf(rewind(7, 1, 1)), "sequence_unknown") << "a newer start has no scores";
  EXPECT_EQ(ReasonOf(rewind(7, 0, 3)), "ok");
  EXPECT_EQ(std::get<RewindAnswer>(answer.body).draft_rows, 1u);
  EXPECT_EQ(std::get<RewindAnswer>(answer.body).physical_len, 17u);
  auto left = table->ScoresOf(7, 0);
  EXPECT_EQ(left->sums, sums) << "not a copy: the same bits";
  EXPECT_EQ(left->draft, draft);
  EXPECT_EQ(ReasonOf(rewind(7, 0, 1)), "ok");
  left = table->ScoresOf(7, 0);
  EXPECT_EQ(left->drafts, 0u);
  EXPECT_EQ(left->draft, nullptr);
  EXPECT_EQ(left->sums, sums);
  EXPECT_EQ(ReasonOf(rewind(7, 0, 1)), "rewind_too_far");
  // The record's length went down with it.
  call.logical_len = call.physical_len = 16;
  EXPECT_EQ(table->Check(call), absl::OkStatus());
  call.logical_len = call.physical_len = 15;
  EXPECT_EQ(ReasonOf(table->Check(call)), "sequence_stale");
  call.generation = 3;
  call.logical_len = call.physical_len = 20;
  table->Record(call, SequenceEffect::kNone, 20, PositionEffect::kSame);
  EXPECT_EQ(ReasonOf(rewind(7, 0, 1)), "sequence_stale");
  EXPECT_EQ(table->ScoresOf(7, 3), nullptr) << "a new generation begins without scores";
}

TEST(SequenceTable, RecordsWithScoresAreNotGivenUp) {
  const auto budget = std::make_shared<ScoreBudget>(1 << 20);
  SequenceTable table(2, budget);
  const auto call = [](uint64_t id) {
    SequenceSpec spec;
    spec.sequence_id = id;
    spec.logical_len = spec.physical_len = 4;
    return spec;
  };
  const auto keep = [&](uint64_t id) {
    auto scores = std::make_shared<RunningScores>();
    scores->lease = table.NewLease();
    EXPECT_TRUE(scores->lease->Resize(100));
    table.SetScores(id, scores);
  };
  table.Record(call(1), SequenceEffect::kNone, 4, PositionEffect::kSame);
  keep(1);
  table.Record(call(2), SequenceEffect::kNone, 4, PositionEffect::kSame);
  table.Record(call(3), SequenceEffect::kNone, 4, PositionEffect::kSame);
  EXPECT_NE(table.ScoresOf(1, 0), nullptr) << "the oldest, but it has scores";
  EXPECT_FALSE(table.GenerationOf(2).has_value());
  keep(3);
  EXPECT_EQ(ReasonOf(table.Check(call(4))), "quota_state");
  EXPECT_EQ(ReasonOf(table.Check(call(3))), "ok");
  EXPECT_EQ(budget->used(), 200u);
  EXPECT_TRUE(table.Forget(1));
  EXPECT_EQ(budget->used(), 100u);
  EXPECT_EQ(ReasonOf(table.Check(call(4))), "ok");
  table.SetScores(3, nullptr);
  EXPECT_EQ(budget->used(), 0u);
  table.SetScores(99, std::make_shared<RunningScores>());
  EXPECT_EQ(table.ScoresOf(99, 0), nullptr) << "released meanwhile";
}

// Inputs of any type, with everything that bends logits, in memory of the test's own.
class Drafts : public testing::TestWithParam<DType> {
 protected:
  static constexpr uint32_t kRows = 12, kHeads = 2, kQueryHeads = 4, kSize = 8, kNew = 6;

  TensorView Tensor(uint64_t stream, uint32_t rows, uint32_t elems, DType dtype) {
    auto& memory = memory_.emplace_back(size_t{rows} * kQueryHeads * elems * 4);
    for (size_t i = 0; i < size_t{rows} * kQueryHeads * elems; ++i) {
      const auto x = static_cast<float>(static_cast<int>(SplitMix64(stream, i) >> 60)) / 8 - 1;
      StoreElement(memory.data() + i * ElementBytes(dtype), dtype, x);
    }
    const uint64_t e = ElementBytes(dtype);
    return {memory.data(), dtype, rows, kQueryHeads, elems, e * elems * kQueryHeads, e * elems, e};
  }

  std::list<std::vector<std::byte>> memory_;
};

TEST_P(Drafts, VoteLaterWithTheBitsTheyWouldHaveHadNow) {
  EngineWorld world({}, nullptr, MakeCpuBackend(1));
  DecodeWorker worker(world, {.heads = {kHeads}, .dk = kSize, .dv = kSize, .before_rope = true});
  worker.Append(1, kRows);
  const auto backend = MakeCpuBackend(1);
  PolicySpec policy;
  policy.window.all = true;
  for (const Scorer scorer : {Scorer::kAttention, Scorer::kObcJoint, Scorer::kDrop}) {
    for (const bool one_pass : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(scorer) << one_pass);
      policy.score.scorer = scorer;
      TriageLayer layer;
      layer.rows = worker.View(1, 0, kRows);
      layer.input.source = one_pass ? AttentionSource::kQueryOutput : AttentionSource::kQuery;
      layer.input.scale = 0.3f;
      layer.input.softcap = 20;
      layer.input.lse_base = LseBase::k2;
      layer.input.q = Tensor(1, kNew, kSize, GetParam());
      layer.input.sink_logits = Tensor(2, 1, 1, DType::kF32);
      if (one_pass) {
        layer.input.o = Tensor(3, kNew, kSize, GetParam());
        layer.input.lse = Tensor(4, kNew, 1, DType::kF32);
      }
      layer.input.rotation.rope = worker.rope();
      layer.input.rotation.first = kRows - kNew;
      // Now: the newest four rows of six.
      constexpr uint32_t kDrafts = 4;
      RowSums now, later;
      for (RowSums* sums : {&now, &later}) Extend(kRows, *sums);
      FoldCounts counts;
      TriageLayer newest = layer;
      for (TensorView* view : {&newest.input.q, &newest.input.o, &newest.input.lse}) {
        if (!*view) continue;
        view->base += (kNew - kDrafts) * view->row_stride;
        view->rows = kDrafts;
      }
      newest.input.rotation.first += kNew - kDrafts;
      ASSERT_EQ(FoldRows(*backend, {newest}, kRows, kDrafts, policy, nullptr, now, counts),
                absl::OkStatus());
      // Later: from copies, after the inputs' memory has been used for something else.
      const auto drafts = KeepDrafts({layer}, kDrafts, nullptr).value();
      EXPECT_EQ(drafts->bytes(), DraftBytes({layer}, kDrafts));
      PlanCache cache;
      cache.layers.resize(1);
      cache.layers[0].rope = worker.rope();
      for (auto& memory : memory_) std::fill(memory.begin(), memory.end(), std::byte{0x5A});
      const auto inputs = DraftInputs(*drafts, kDrafts, cache, {layer});
      ASSERT_EQ(FoldRows(*backend, inputs, kRows, kDrafts, policy, nullptr, later, counts),
                absl::OkStatus());
      EXPECT_EQ(now.layers[0].sums, later.layers[0].sums);
      EXPECT_TRUE(std::any_of(now.layers[0].sums.begin(), now.layers[0].sums.end(),
                              [](float x) { return x > 0; }));
      // Some of them were taken back: the others are as if they had come alone.
      RowSums some, fewer;
      for (RowSums* sums : {&some, &fewer}) Extend(kRows - 1, *sums);
      ASSERT_EQ(FoldRows(*backend, DraftInputs(*drafts, kDrafts - 1, cache, {layer}), kRows - 1,
                         kDrafts - 1, policy, nullptr, some, counts),
                absl::OkStatus());
      ASSERT_EQ(some.layers[0].sums.size(), (kRows - 1) * kHeads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Drafts,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                         DType::kF8E5M2));

}  // namespace
}  // namespace kvtriage
