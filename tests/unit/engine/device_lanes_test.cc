// Calls on the memory of devices: the same answers and bytes as on the host's, a lane for each, and
// never a look at a device's memory from host code (it faults).
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "kernels/core/error.h"
#include "service/policy/named_policies.h"
#include "tests/unit/engine/decode_worker.h"
#include "tests/unit/engine/far_memory.h"
#include "tests/unit/engine/gate.h"

namespace kvtriage {
namespace {

PolicySpec Named(std::string_view name, uint32_t tokens) {
  PolicySpec policy = *ExpandPolicy(name);
  policy.budget.kept_tokens = tokens;
  return policy;
}

std::string Said(const absl::Status& status) {
  return status.ok() ? "ok" : ReasonOf(status) + " " + FieldOf(status);
}

const FarDevice& At(const DeviceList& devices, DeviceIndex index) {
  return static_cast<const FarDevice&>(devices.at(index));
}

// Two devices with kernels of their own, beside the host.
class DeviceLanes : public testing::Test {
 protected:
  explicit DeviceLanes(const EngineLimits& limits = {})
      : devices_(FarDevices(2)),
        world_(limits, nullptr, std::make_unique<PlainBackend>(hooks_[0]), {Lane(1), Lane(2)},
               &devices_),
        session_(world_.Attach()) {}

  DeviceLane Lane(DeviceIndex index) {
    DeviceLane lane = At(devices_, index).Lane([hooks = hooks_[index]] {
      return std::make_unique<PlainBackend>(hooks);
    });
    lane.on_lost = [this, index] { lost_ += index; };
    return lane;
  }
  // A cache in the memory of a device, or of the host (0).
  std::unique_ptr<WorkerCache> CacheOn(DeviceIndex index) {
    std::optional<LendOn> there;
    if (index != kHostMemory) there.emplace(At(devices_, index));
    return std::make_unique<WorkerCache>(session_, CacheShape());
  }
  CompressSpec Cut(const WorkerCache& cache, uint64_t id, uint32_t slot = 0) {
    CompressSpec spec = RandomSpec(cache, {cache.Sequence(id, 20, {0, 1, 2, 3, 4})}, 9);
    ActInPlace(spec, slot);
    return spec;
  }

  std::array<std::shared_ptr<BackendHooks>, 3> hooks_ = {std::make_shared<BackendHooks>(),
                                                         std::make_shared<BackendHooks>(),
                                                         std::make_shared<BackendHooks>()};
  std::atomic<uint32_t> lost_{0};
  DeviceList devices_;
  EngineWorld world_;
  std::shared_ptr<Session> session_;
};

TEST_F(DeviceLanes, RunTheCallsOfTheirMemory) {
  const auto host = CacheOn(kHostMemory), first = CacheOn(1), second = CacheOn(2);
  std::vector<std::byte> moved;
  for (const WorkerCache* cache : {host.get(), first.get(), second.get()}) {
    const CallResult result = RunCall(world_, session_, Cut(*cache, cache->id()));
    ASSERT_EQ(Said(result.status), "ok");
  }
  EXPECT_EQ(host->lent().Copy() == first->lent().Copy(), true) << "the same bytes move";
  EXPECT_EQ(host->lent().Copy() == second->lent().Copy(), true);
  for (const auto& hooks : hooks_) EXPECT_EQ(hooks->scores, 1) << "each on its own lane";
}

TEST_F(DeviceLanes, WorkAtTheSameTime) {
  const auto first = CacheOn(1), second = CacheOn(2);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall held = Start(world_, session_, Cut(*first, 1));
  ASSERT_TRUE(gate.Reached());
  EXPECT_EQ(Said(RunCall(world_, session_, Cut(*second, 2, 1)).status), "ok");
  EXPECT_FALSE(held.Ready());
  gate.Open();
  EXPECT_EQ(Said(held.Get().status), "ok");
}

TEST_F(DeviceLanes, KeepASequenceToOneJobAtATime) {
  const auto first = CacheOn(1), second = CacheOn(2);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall held = Start(world_, session_, Cut(*first, 7));
  ASSERT_TRUE(gate.Reached());
  PendingCall same = Start(world_, session_, Cut(*second, 7, 1));
  EXPECT_EQ(Said(RunCall(world_, session_, Cut(*second, 8, 2)).status), "ok") << "others pass it";
  EXPECT_FALSE(same.Ready());
  gate.Open();
  EXPECT_EQ(Said(held.Get().status), "ok");
  // It was cut back meanwhile, so the second call knows an older state of it.
  EXPECT_EQ(ReasonOf(same.Get().status), "sequence_stale");
}

TEST_F(DeviceLanes, ReleasingWaitsForTheLaneThatHasTheSequence) {
  const auto first = CacheOn(1), second = CacheOn(2);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall held = Start(world_, session_, Cut(*first, 7));
  ASSERT_TRUE(gate.Reached());
  std::promise<Engine::Released> released;
  world_.engine().ReleaseSequences(session_, {7}, [&](auto counts) { released.set_value(counts); });
  auto answer = released.get_future();
  // Another lane's job ends: that is not what the release waits for.
  EXPECT_EQ(Said(RunCall(world_, session_, Cut(*second, 8, 1)).status), "ok");
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  gate.Open();
  EXPECT_EQ(answer.get().released, 1u);
  EXPECT_EQ(Said(held.Get().status), "ok");
}

TEST_F(DeviceLanes, TheSessionsEndWaitsForAllOfThem) {
  const auto first = CacheOn(1), second = CacheOn(2);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall held = Start(world_, session_, Cut(*first, 1));
  ASSERT_TRUE(gate.Reached());
  Gate other;
  hooks_[2]->on_score = other.hook();
  PendingCall more = Start(world_, session_, Cut(*second, 2, 1));
  ASSERT_TRUE(other.Reached());
  world_.sessions().End(session_, EndCause::kClient);
  other.Open();
  EXPECT_EQ(Said(more.Get().status), "ok");
  EXPECT_FALSE(world_.sessions().WaitAllClosed(20));
  gate.Open();
  EXPECT_TRUE(world_.sessions().WaitAllClosed(20'000));
  EXPECT_EQ(Said(held.Get().status), "ok");
}

TEST_F(DeviceLanes, MemoryOfOneCallIsOfOneDevice) {
  const auto host = CacheOn(kHostMemory), first = CacheOn(1), second = CacheOn(2);
  CompressSpec copy = RandomSpec(*first, {first->Sequence(1, 20, {0, 1, 2, 3, 4})}, 9);
  copy.sequences[0].destination = {0, 1, 2};
  ActCopy(copy, second->id());
  EXPECT_EQ(Said(RunCall(world_, session_, copy).status), "mixed_memory act.copy_to.cache_id");
  CompressSpec sums = RecencySpec(*first, {first->Sequence(2, 20, {0, 1, 2, 3, 4})}, 9);
  sums.policy.score.scorer = Scorer::kAttention;
  sums.inputs.source = AttentionSource::kColumnSums;
  sums.inputs.sums_axis = HeadAxis::kKv;
  TensorSpec tensor;
  tensor.region_id = host->lent().region_id();
  tensor.offset = host->tail_offset();
  tensor.layers = 2;
  tensor.heads = 2;
  tensor.elems = 20;
  tensor.elem_stride = 4;
  tensor.head_stride = 80;
  tensor.layer_stride = 160;
  sums.inputs.sums = tensor;
  EXPECT_EQ(Said(RunCall(world_, session_, sums).status), "mixed_memory inputs.column_sums.sums");
  sums.header.key = NewKey();
  sums.inputs.sums->region_id = first->lent().region_id();
  EXPECT_EQ(Said(RunCall(world_, session_, sums).status), "ok");
}

class OneJobAtATime : public DeviceLanes {
 protected:
  OneJobAtATime() : DeviceLanes({.jobs_per_session = 8, .lane_queue = 1}) {}
};

TEST_F(OneJobAtATime, AFullQueueIsOneLanesOwn) {
  const auto first = CacheOn(1), second = CacheOn(2);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall running = Start(world_, session_, Cut(*first, 1, 0));
  ASSERT_TRUE(gate.Reached());
  PendingCall waiting = Start(world_, session_, Cut(*first, 2, 1));
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, Cut(*first, 3, 2)).status), "queue_full");
  EXPECT_EQ(Said(RunCall(world_, session_, Cut(*second, 4, 3)).status), "ok");
  gate.Open();
  EXPECT_EQ(Said(running.Get().status), "ok");
  EXPECT_EQ(Said(waiting.Get().status), "ok");
}

// A device whose kernels fail for good.
class LostBackend final : public Backend {
 public:
  explicit LostBackend(bool in_score) : in_score_(in_score) {}
  std::string name() const override { return "lost"; }
  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    return in_score_ ? Lost() : cpu_->Score(requests, stop, results);
  }
  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return cpu_->Select(requests, results);
  }
  absl::Status Measure(std::span<const QualityRequest>, const StopCheck&,
                       std::vector<QualityResult>&) override {
    return Lost();
  }
  absl::Status Diverge(const DivergenceRequest&, DivergenceResult&) override { return Lost(); }
  absl::Status Move(std::span<const MoveRequest>, MoveResult&) override { return Lost(); }
  absl::Status Rotate(std::span<const RotateRequest>, RotateResult&) override { return Lost(); }
  absl::Status CopyRows(std::span<const RowCopy>, RowCopyResult&) override { return Lost(); }

 private:
  static absl::Status Lost() { return Error(ErrorReason::kDeviceLost, "lane", "gone").Got(700); }
  const bool in_score_;
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend(1);
};

TEST(LostDevice, TellsOnceAndSendsTheCallToTheLedger) {
  for (const bool in_score : {true, false}) {
    SCOPED_TRACE(in_score ? "while it scores" : "while it moves");
    const DeviceList devices = FarDevices(1);
    DeviceLane lane =
        At(devices, 1).Lane([in_score] { return std::make_unique<LostBackend>(in_score); });
    std::atomic<int> told{0};
    lane.on_lost = [&told] { ++told; };
    EngineWorld world({}, nullptr, nullptr, {lane}, &devices);
    const auto session = world.Attach();
    const LendOn there(At(devices, 1));
    WorkerCache cache(session, CacheShape());
    for (uint32_t i = 0; i < 2; ++i) {
      CompressSpec spec = RandomSpec(cache, {cache.Sequence(i, 20, {0, 1, 2, 3, 4})}, 9);
      ActInPlace(spec);
      const CallResult result = RunCall(world, session, spec);
      ASSERT_EQ(ReasonOf(result.status), "device_lost");
      EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_TRUE(WaitUntil([&] { return told == 1; }));
    EXPECT_TRUE(world.engine().WaitIdle(10'000));
    EXPECT_EQ(told, 1);
  }
}

TEST_F(DeviceLanes, GivingUpAnswersWhatWaits) {
  const auto first = CacheOn(1);
  Gate gate;
  hooks_[1]->on_score = gate.hook();
  PendingCall running = Start(world_, session_, Cut(*first, 1, 0));
  ASSERT_TRUE(gate.Reached());
  PendingCall waiting = Start(world_, session_, Cut(*first, 2, 1));
  world_.engine().GiveUp();
  EXPECT_EQ(ReasonOf(waiting.Get().status), "device_lost");
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, Cut(*first, 3, 2)).status), "device_sick");
  gate.Open();
  EXPECT_EQ(Said(running.Get().status), "ok");
}

TEST(DeviceThatDoesNotStart, IsReported) {
  DeviceLane lane;
  lane.make = []() -> absl::StatusOr<LaneDevice> {
    return absl::Status(Error(ErrorReason::kDeviceMemory, "workspace", "no memory"));
  };
  Engine engine({}, MakeCpuBackend(1), nullptr, {lane});
  EXPECT_EQ(ReasonOf(engine.WaitReady()), "device_memory");
}

// What the engine keeps in its own memory, and what it reads of the device's: running sums, drafts.
struct Decoding {
  explicit Decoding(bool far, const DecodeShape& shape)
      : devices(FarDevices(1)),
        world({}, nullptr, MakeCpuBackend(1),
              {At(devices, 1).Lane([] { return MakeCpuBackend(1); })}, &devices) {
    if (far) there.emplace(At(devices, 1));
    worker.emplace(world, shape);
  }

  DeviceList devices;
  EngineWorld world;
  std::optional<LendOn> there;
  std::optional<DecodeWorker> worker;
};

std::vector<std::byte> Decode(bool far, std::string_view policy_name, bool before_rope) {
  Decoding decoding(far, {.capacity = 128, .before_rope = before_rope});
  DecodeWorker& worker = *decoding.worker;
  const PolicySpec policy = Named(policy_name, 24);
  for (const uint64_t id : {1, 2}) {
    worker.Append(id, 20);
    worker.Run(worker.Observe(&policy, {{.id = id, .rows = 20}}));
    for (uint32_t step = 0; step < 4; ++step) {
      // Three drafts, of which the last one is taken back.
      worker.Append(id, 5);
      worker.Run(worker.Observe(nullptr, {{.id = id, .rows = 5, .drafts = 3}}));
      EXPECT_EQ(worker.TryRun(worker.Rewind(id, 1)), absl::OkStatus());
      worker.TakeBack(id, 1);
      worker.Append(id, 2);
      worker.Run(worker.Observe(nullptr, {{.id = id, .rows = 2}}));
    }
    worker.CheckRows(id);
  }
  CompressSpec measured = worker.Compress(policy, 1, 4);
  measured.policy.budget.kept_tokens = 12;
  measured.measure.output_error = true;
  worker.Run(measured);
  return worker.cache().lent().Copy();
}

TEST(DecodingOnADevice, EvictsTheSameRows) {
  for (const char* policy : {"h2o", "tova", "h2o+obc-joint"}) {
    for (const bool before_rope : {false, true}) {
      SCOPED_TRACE(testing::Message() << policy << (before_rope ? ", before RoPE" : ""));
      EXPECT_EQ(Decode(true, policy, before_rope) == Decode(false, policy, before_rope), true);
    }
  }
}

}  // namespace
}  // namespace kvtriage
