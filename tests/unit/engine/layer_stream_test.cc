// A stream of layers gives bit for bit what one call over all of them gives, and each of its layers
// what a call over that layer gives: the answers, and every byte of the lent memory.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/core/splitmix64.h"
#include "tests/unit/engine/open_stream.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

void ExpectSame(const TriageResult& a, const TriageResult& b) {
  EXPECT_EQ(a.noop, b.noop);
  EXPECT_EQ(a.kept, b.kept);
  EXPECT_EQ(a.window_mass, b.window_mass);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    EXPECT_EQ(a.layers[l].first_list, b.layers[l].first_list);
    EXPECT_EQ(a.layers[l].list_step, b.layers[l].list_step);
    EXPECT_EQ(a.layers[l].kept, b.layers[l].kept);
    EXPECT_EQ(a.layers[l].trimmed, b.layers[l].trimmed);
    EXPECT_EQ(a.layers[l].nonfinite_tokens, b.layers[l].nonfinite_tokens);
    EXPECT_EQ(a.layers[l].skipped_rows, b.layers[l].skipped_rows);
    EXPECT_EQ(a.layers[l].stage1, b.layers[l].stage1);
    EXPECT_EQ(a.layers[l].stage2, b.layers[l].stage2);
    EXPECT_EQ(a.layers[l].lse_suspect, b.layers[l].lse_suspect);
  }
  ASSERT_EQ(a.quality.size(), b.quality.size());
  for (size_t l = 0; l < a.quality.size(); ++l) {
    EXPECT_EQ(a.quality[l].head_mass_mean, b.quality[l].head_mass_mean);
    EXPECT_EQ(a.quality[l].head_error, b.quality[l].head_error);
    EXPECT_EQ(a.quality[l].head_recall, b.quality[l].head_recall);
  }
}

void ExpectSame(const CompressAnswer& a, const CompressAnswer& b) {
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.layer_indexes, b.layer_indexes);
  EXPECT_EQ(a.heads, b.heads);
  ASSERT_EQ(a.sequences.size(), b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(a.sequences[i].sequence_id, b.sequences[i].sequence_id);
    EXPECT_EQ(a.sequences[i].kv_revision, b.sequences[i].kv_revision);
    EXPECT_EQ(a.sequences[i].logical_len, b.sequences[i].logical_len);
    EXPECT_EQ(a.sequences[i].physical_len, b.sequences[i].physical_len);
    EXPECT_EQ(a.sequences[i].kept, b.sequences[i].kept);
    EXPECT_EQ(a.sequences[i].blocks_used, b.sequences[i].blocks_used);
    EXPECT_EQ(a.sequences[i].rewritten_bitmap, b.sequences[i].rewritten_bitmap);
    ExpectSame(a.sequences[i].triage, b.sequences[i].triage);
  }
}

// A worker with a cache of three layers whose bytes are small numbers, and queries behind it.
class Worker {
 public:
  explicit Worker(EngineWorld& world) : session_(world.Attach()), cache_(session_, kShape) {
    std::byte* const data = cache_.lent().data();
    for (uint64_t i = 0; i + 4 <= cache_.lent().bytes(); i += 4) {
      const float value = static_cast<float>(SplitMix64(3, i) >> 40) / (1 << 22) - 2.0f;
      std::memcpy(data + i, &value, sizeof value);
    }
  }

  // Two sequences, one of them a noop at 20 kept rows.
  CompressSpec Spec(ActKind act, Granularity granularity) {
    std::vector<int32_t> a(8), b(5);
    std::iota(a.begin(), a.end(), 2);
    std::iota(b.begin(), b.end(), 20);
    CompressSpec spec =
        RandomSpec(cache_, {cache_.Sequence(1, 30, a), cache_.Sequence(2, 17, b)}, 20);
    spec.policy.granularity = granularity;
    for (SequenceSpec& sequence : spec.sequences) {
      sequence.rows_begin = sequence.sequence_id == 1 ? 0 : kQueries;
      sequence.rows_count = kQueries;
      sequence.destination.resize(sequence.table.size());
      std::iota(sequence.destination.begin(), sequence.destination.end(),
                sequence.sequence_id == 1 ? 30 : 50);
    }
    if (act == ActKind::kInPlace) ActInPlace(spec, 2);
    if (act == ActKind::kCopy) ActCopy(spec, cache_.id());
    return spec;
  }

  // The same with attention of four query rows per sequence.
  CompressSpec AttentionSpec(ActKind act, Granularity granularity) {
    CompressSpec spec = Spec(act, granularity);
    spec.policy.score.scorer = Scorer::kAttention;
    spec.policy.window.last = kQueries;
    spec.policy.protect = {.sinks = 2, .recent = 1};
    TensorSpec q;
    q.region_id = cache_.lent().region_id();
    q.offset = cache_.tail_offset() + 16;
    q.layers = 3, q.rows = 2 * kQueries, q.heads = 4, q.elems = 4;
    q.elem_stride = 4, q.head_stride = 16, q.row_stride = 64, q.layer_stride = 64 * q.rows + 32;
    spec.inputs.source = AttentionSource::kQuery;
    spec.inputs.softmax_scale = 0.5;
    spec.inputs.q = q;
    TensorSpec sinks = q;
    sinks.offset += 4096;
    sinks.rows = sinks.elems = 1;
    sinks.elem_stride = sinks.row_stride = 0, sinks.head_stride = 4, sinks.layer_stride = 16;
    spec.inputs.sink_logits = sinks;
    spec.measure = {true, true, true};
    return spec;
  }

  // CriticalKV over the same queries, its projection behind them.
  CompressSpec CriticalSpec(ActKind act, const Budget& budget) {
    CompressSpec spec = AttentionSpec(act, Granularity::kPerHead);
    spec.policy.score = {
        .scorer = Scorer::kCritical, .reduce = Reduce::kMean, .epsilon = 1e-3, .first_stage = 0.5};
    spec.policy.budget = budget;
    TensorSpec projection = *spec.inputs.q;
    projection.offset += 8192;
    projection.rows = 5, projection.elems = 6;
    projection.head_stride = 24, projection.row_stride = 96, projection.layer_stride = 480;
    spec.inputs.output_projection = projection;
    return spec;
  }

  const std::shared_ptr<Session>& session() { return session_; }
  WorkerCache& cache() { return cache_; }

 private:
  static constexpr uint32_t kQueries = 4;
  inline static const CacheShape kShape = {.blocks = 64, .heads = {2, 2, 2}};

  std::shared_ptr<Session> session_;
  WorkerCache cache_;
};

using Case = std::tuple<ActKind, Granularity, bool, bool>;  // attention, kernels

class Layers : public testing::TestWithParam<Case> {
 protected:
  CompressSpec SpecOf(Worker& worker) {
    const auto [act, granularity, attention, kernels] = GetParam();
    CompressSpec spec =
        attention ? worker.AttentionSpec(act, granularity) : worker.Spec(act, granularity);
    // Explicit rows that differ by layer, and by head where a set is a head's own.
    ExplicitRows protect;
    protect.granularity = granularity;
    const size_t lists = granularity == Granularity::kPerHead ? 6 : 3;
    for (size_t i = 0; i < lists; ++i) protect.lists.push_back({static_cast<int32_t>(3 + i), 15});
    spec.sequences[0].protect = protect;
    return spec;
  }
  static std::unique_ptr<Backend> MakeBackend() {
    return std::get<3>(GetParam()) ? MakeCpuBackend(2) : nullptr;
  }

  EngineWorld world_{{}, nullptr, MakeBackend()};
};

TEST_P(Layers, GiveWhatOneCallGives) {
  Worker one(world_), many(world_);
  ASSERT_EQ(one.cache().lent().Copy() == many.cache().lent().Copy(), true);
  const CallResult whole = RunCall(world_, one.session(), SpecOf(one));
  ASSERT_EQ(ReasonOf(whole.status), "ok") << whole.status.ToString();

  OpenStream stream(world_, many.session(), SpecOf(many));
  ASSERT_TRUE(stream.Opened()) << stream.Ended().status.ToString();
  for (const uint32_t layer : {1u, 2u, 0u}) stream.Ready(layer);
  stream.HalfClose();
  const CallResult ended = stream.Ended();
  ASSERT_EQ(ReasonOf(ended.status), "ok") << ended.status.ToString();
  ExpectSame(CompressOf(ended), CompressOf(whole));
  EXPECT_EQ(one.cache().lent().Copy() == many.cache().lent().Copy(), true);

  // The fences have learnt the same.
  for (Worker* worker : {&one, &many}) {
    CompressSpec stale = SpecOf(*worker);
    stale.header.key = NewKey();
    const bool advice = std::get<0>(GetParam()) == ActKind::kSelectOnly;
    EXPECT_EQ(ReasonOf(RunCall(world_, worker->session(), stale).status),
              advice ? "ok" : "sequence_stale");
  }
}

TEST_P(Layers, EachGivesWhatACallOverItGives) {
  Worker many(world_);
  OpenStream stream(world_, many.session(), SpecOf(many));
  ASSERT_TRUE(stream.Opened()) << stream.Ended().status.ToString();
  const std::vector<uint32_t> order = {2, 0, 1};
  for (const uint32_t layer : order) stream.Ready(layer);
  const auto done = stream.Done(3);
  ASSERT_EQ(done.size(), 3u);
  for (size_t i = 0; i < order.size(); ++i) {
    SCOPED_TRACE(order[i]);
    EXPECT_EQ(done[i].first, order[i]);
    Worker one(world_);
    CompressSpec spec = SpecOf(one);
    spec.layers = {order[i]};
    // By hand what the stream cuts by itself.
    for (auto* const tensor : {&spec.inputs.q, &spec.inputs.sink_logits}) {
      if (!tensor->has_value()) continue;
      (*tensor)->offset += order[i] * (*tensor)->layer_stride;
      (*tensor)->layers = 1;
    }
    auto& lists = spec.sequences[0].protect.lists;
    const size_t each = lists.size() / 3;
    lists = {lists.begin() + static_cast<int64_t>(order[i] * each),
             lists.begin() + static_cast<int64_t>((order[i] + 1) * each)};
    const CallResult alone = RunCall(world_, one.session(), spec);
    ASSERT_EQ(ReasonOf(alone.status), "ok") << alone.status.ToString();
    ExpectSame(CompressOf(done[i].second), CompressOf(alone));
  }
  stream.HalfClose();
  EXPECT_EQ(ReasonOf(stream.Ended().status), "ok");
}

// Counts and tensors of the call are cut layer by layer; a layer's part of a pyramid does not
// depend on the others.
class LayersOfUnequalBudgets : public testing::TestWithParam<ActKind> {};

TEST_P(LayersOfUnequalBudgets, GiveWhatOneCallGives) {
  // In the second sequence, of 17 rows, whole layers stay; a copy of them must be there all the
  // same.
  const Budget budgets[] = {{.explicit_layers = {9, 30, 5}},
                            {.explicit_layers = {30, 30, 30}},
                            {.explicit_heads = {9, 4, 30, 30, 5, 17}},
                            {.kept_tokens = 10, .pyramid_beta = 20},
                            {.kept_tokens = 10, .adaptive_alpha = 0.2, .pyramid_beta = 20}};
  for (const Budget& budget : budgets) {
    SCOPED_TRACE(&budget - budgets);
    EngineWorld world({}, nullptr, MakeCpuBackend(2));
    Worker one(world), many(world);
    const CallResult whole = RunCall(world, one.session(), one.CriticalSpec(GetParam(), budget));
    ASSERT_EQ(ReasonOf(whole.status), "ok") << whole.status.ToString();
    OpenStream stream(world, many.session(), many.CriticalSpec(GetParam(), budget));
    ASSERT_TRUE(stream.Opened()) << stream.Ended().status.ToString();
    for (const uint32_t layer : {1u, 2u, 0u}) stream.Ready(layer);
    stream.HalfClose();
    const CallResult ended = stream.Ended();
    ASSERT_EQ(ReasonOf(ended.status), "ok") << ended.status.ToString();
    ExpectSame(CompressOf(ended), CompressOf(whole));
    EXPECT_EQ(one.cache().lent().Copy() == many.cache().lent().Copy(), true);
  }
}

INSTANTIATE_TEST_SUITE_P(Acts, LayersOfUnequalBudgets,
                         testing::Values(ActKind::kSelectOnly, ActKind::kCopy, ActKind::kInPlace));

// All rows stay, but the keys of the first layer turn: the second, without a rotary part, is copied
// too.
TEST(LayersThatTurn, TakeTheOthersWithThem) {
  Rope rope;
  rope.rotary_dim = 4;
  rope.speeds = {1.0, 0.01};
  EngineWorld world({}, nullptr, MakeCpuBackend(2));
  std::vector<std::byte> after[2];
  for (const bool streamed : {false, true}) {
    const auto session = world.Attach();
    WorkerCache cache(session, {.ropes = {rope}, .rope_of = {1, 0}});
    CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 10, {0, 1, 2})}, 10);
    ActCopy(spec, cache.id());
    spec.act.renumber = AngleMode::kExact;
    spec.sequences[0].destination = {8, 9, 10};
    spec.sequences[0].positions.emplace().first = 100;
    if (streamed) {
      OpenStream stream(world, session, spec);
      ASSERT_TRUE(stream.Opened()) << stream.Ended().status.ToString();
      for (const uint32_t layer : {0u, 1u}) stream.Ready(layer);
      stream.HalfClose();
      ASSERT_EQ(ReasonOf(stream.Ended().status), "ok");
    } else {
      ASSERT_EQ(ReasonOf(RunCall(world, session, spec).status), "ok");
    }
    after[streamed] = cache.lent().Copy();
  }
  EXPECT_EQ(after[0] == after[1], true);
}

TEST(LayersOfAPyramid, UnequalProtectedSetsAreRefusedAtTheStart) {
  EngineWorld world({}, nullptr, MakeCpuBackend(2));
  Worker worker(world);
  CompressSpec spec =
      worker.CriticalSpec(ActKind::kInPlace, {.kept_tokens = 10, .pyramid_beta = 20});
  spec.sequences[1].protect = {Granularity::kPerLayer, {{0}, {5}, {6}}};  // row 0 is a sink already
  OpenStream stream(world, worker.session(), spec);
  EXPECT_FALSE(stream.Opened());
  const absl::Status status = stream.Ended().status;
  EXPECT_EQ(ReasonOf(status), "policy_invalid");
  EXPECT_EQ(GetErrorInfo(status)->field, "open.sequences[1].protect");
}

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  const auto [act, granularity, attention, kernels] = info.param;
  std::string name = act == ActKind::kSelectOnly ? "Select"
                     : act == ActKind::kCopy     ? "Copy"
                                                 : "InPlace";
  name += granularity == Granularity::kPerHead ? "PerHead" : "PerLayer";
  return name + (attention ? "Attention" : "Random") + (kernels ? "Kernels" : "Plain");
}

// The plain backend scores no attention.
INSTANTIATE_TEST_SUITE_P(
    Random, Layers,
    testing::Combine(testing::Values(ActKind::kSelectOnly, ActKind::kCopy, ActKind::kInPlace),
                     testing::Values(Granularity::kPerHead, Granularity::kPerLayer),
                     testing::Values(false), testing::Values(false)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Attention, Layers,
    testing::Combine(testing::Values(ActKind::kSelectOnly, ActKind::kCopy, ActKind::kInPlace),
                     testing::Values(Granularity::kPerHead, Granularity::kPerLayer),
                     testing::Values(true), testing::Values(true)),
    NameOf);

}  // namespace
}  // namespace kvtriage
