// What the engine tells the metrics.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/mutex.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

struct Told {
  std::string policy;
  DecisionOutcome outcome;
  double considered, sink, middle, recent;
  uint64_t evicted, reclaimable, moved;
  std::vector<Decision::Layer> layers;
};

class Recorder : public EngineObserver {
 public:
  void OnStage(Stage stage, double seconds) override {
    const MutexLock lock(&mu_);
    EXPECT_GE(seconds, 0);
    stages_.push_back(stage);
  }
  void OnDecision(const Decision& d) override {
    const MutexLock lock(&mu_);
    told_.push_back({std::string(d.policy),
                     d.outcome,
                     d.considered,
                     d.kept_sink,
                     d.kept_middle,
                     d.kept_recent,
                     d.evicted_bytes,
                     d.reclaimable_bytes,
                     d.moved_bytes,
                     {d.layers.begin(), d.layers.end()}});
  }
  void OnBlendWrite(const BlendWrite&) override {}
  void OnBlend(const BlendDecision& decision) override {
    const MutexLock lock(&mu_);
    blends_.push_back(decision);
  }
  void OnScores(uint64_t /*bytes*/) override {}
  void OnScoresDropped() override {}
  void OnQueue(uint32_t waiting) override { queue_ = waiting; }

  std::vector<Told> told() {
    const MutexLock lock(&mu_);
    return told_;
  }
  std::vector<Stage> stages() {
    const MutexLock lock(&mu_);
    return stages_;
  }
  std::vector<BlendDecision> blends() {
    const MutexLock lock(&mu_);
    return blends_;
  }
  uint32_t queue() const { return queue_; }

 private:
  Mutex mu_;
  std::vector<Told> told_ ABSL_GUARDED_BY(mu_);
  std::vector<Stage> stages_ ABSL_GUARDED_BY(mu_);
  std::vector<BlendDecision> blends_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint32_t> queue_{99};
};

class Decisions : public testing::Test {
 protected:
  Recorder recorder_;
  EngineWorld world_{{}, &recorder_};
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_{session_, {.companion_bytes = 5}};
  // K 4 and V 6 floats, a companion of 5 bytes, 2 layers of 2 heads.
  static constexpr uint64_t kTokenBytes = (16 + 24 + 5) * 4;
};

TEST_F(Decisions, InPlaceCountsWhatWasDroppedAndFreed) {
  CompressSpec spec = RecencySpec(cache_, {cache_.Sequence(1, 16, {0, 1, 2, 3})}, 6);
  spec.policy.protect = {2, 3, 0};
  ActInPlace(spec);
  ASSERT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "ok");
  const Told told = recorder_.told().at(0);
  EXPECT_EQ(told.policy, "streaming");
  EXPECT_EQ(told.outcome, DecisionOutcome::kApplied);
  EXPECT_EQ(told.considered, 16);
  EXPECT_EQ(told.sink, 2);
  EXPECT_EQ(told.middle, 1);
  EXPECT_EQ(told.recent, 3);
  EXPECT_EQ(told.evicted, 10 * kTokenBytes);
  EXPECT_EQ(told.reclaimable, 2 * 4 * kTokenBytes);  // 2 of 4 blocks
  EXPECT_EQ(told.moved, 4 * kTokenBytes);            // the sinks stay
  ASSERT_EQ(told.layers.size(), 2u);
  EXPECT_EQ(told.layers[1].index, 1u);
  EXPECT_DOUBLE_EQ(told.layers[1].kept_share, 6.0 / 16);
  EXPECT_LT(told.layers[1].mass, 0);
}

TEST_F(Decisions, AdviceNoopAndFailure) {
  const CompressSpec advice = RecencySpec(cache_, {cache_.Sequence(1, 16, {0, 1, 2, 3})}, 6);
  RunCall(world_, session_, advice);
  CompressSpec noop = RecencySpec(cache_, {cache_.Sequence(2, 5, {4, 5})}, 6);
  ActInPlace(noop);
  RunCall(world_, session_, noop);
  CompressSpec failing = RecencySpec(
      cache_, {cache_.Sequence(3, 16, {0, 1, 2, 3}), cache_.Sequence(4, 9, {4, 5, 6})}, 6);
  ActInPlace(failing, 1);
  world_.hooks().fail_move = 0;
  RunCall(world_, session_, failing);
  const std::vector<Told> told = recorder_.told();
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0].outcome, DecisionOutcome::kAdvised);
  EXPECT_EQ(told[0].evicted + told[0].reclaimable + told[0].moved, 0u);
  EXPECT_EQ(told[0].middle, 6);
  EXPECT_EQ(told[1].outcome, DecisionOutcome::kUnchanged);
  EXPECT_EQ(told[1].layers[0].kept_share, 1);
  EXPECT_EQ(told[2].outcome, DecisionOutcome::kFailed);
  EXPECT_EQ(told[3].outcome, DecisionOutcome::kFailed);
  EXPECT_EQ(told[2].evicted, 0u);
}

TEST_F(Decisions, StagesAndQueue) {
  CompressSpec spec = RecencySpec(cache_, {cache_.Sequence(1, 16, {0, 1, 2, 3})}, 6);
  ActInPlace(spec);
  RunCall(world_, session_, spec);
  EXPECT_TRUE(world_.engine().WaitIdle(10'000));
  EXPECT_EQ(recorder_.stages(), (std::vector<Stage>{Stage::kQueue, Stage::kPlan, Stage::kScore,
                                                    Stage::kSelect, Stage::kMove}));
  EXPECT_EQ(recorder_.queue(), 0u);
}

TEST_F(Decisions, Blend) {
  SelectRecomputeSpec spec;
  spec.header.key = NewKey();
  spec.rows = 6;
  spec.suffix = 2;
  spec.ratio = 0.5;
  spec.first_position = 0;
  TensorSpec rows;
  rows.region_id = cache_.lent().region_id();
  rows.offset = cache_.tail_offset();
  rows.rows = 6;
  rows.row_stride = rows.head_stride = rows.elem_stride = 4;
  spec.fresh.tensor = spec.cached.tensor = rows;
  ASSERT_EQ(ReasonOf(Start(world_, session_, spec).Get().status), "ok");
  const BlendDecision blend = recorder_.blends().at(0);
  EXPECT_EQ(blend.recompute, 4u);
  EXPECT_EQ(blend.reused, 2u);
}

}  // namespace
}  // namespace kvtriage
