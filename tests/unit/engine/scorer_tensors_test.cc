// Tensors that single scorers read, from lent memory to the kept rows.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/core/rope_speeds.h"
#include "kernels/core/splitmix64.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

Rope WholeHead(uint32_t size) {
  Rope rope;
  rope.rotary_dim = size;
  rope.speeds = RopeSpeeds({.theta = 10000}, size);
  return rope;
}

// Two layers of two KV heads, and two query heads for each; bytes are small numbers.
class ScorerTensors : public testing::Test {
 protected:
  ScorerTensors() {
    std::byte* const data = cache_.lent().data();
    for (uint64_t i = 0; i + 4 <= cache_.lent().bytes(); i += 4) {
      const float value = static_cast<float>(SplitMix64(3, i) >> 40) / (1 << 22) - 2.0f;
      std::memcpy(data + i, &value, sizeof value);
    }
  }

  TensorSpec Tensor(uint64_t at, uint32_t rows, uint32_t elems) const {
    TensorSpec tensor;
    tensor.region_id = region_;
    tensor.offset = cache_.tail_offset() + at;
    tensor.layers = 2, tensor.rows = rows, tensor.heads = 4, tensor.elems = elems;
    tensor.elem_stride = 4, tensor.head_stride = uint64_t{4} * elems;
    tensor.row_stride = 4 * tensor.head_stride, tensor.layer_stride = rows * tensor.row_stride;
    return tensor;
  }

  // Expected Attention over 40 rows, from the moments of the queries.
  CompressSpec Expecting(uint64_t id) {
    std::vector<int32_t> table(10);
    std::iota(table.begin(), table.end(), 0);
    CompressSpec spec = RandomSpec(cache_, {cache_.Sequence(id, 40, table)}, 12);
    spec.policy.score = {
        .scorer = Scorer::kExpectedAttention, .reduce = Reduce::kMean, .future = 8};
    spec.policy.protect.sinks = 2;
    spec.inputs.softmax_scale = 0.5;
    spec.inputs.query_mean = Tensor(64, 1, 4);
    spec.inputs.query_covariance = Tensor(1024, 4, 4);
    return spec;
  }

  std::vector<std::vector<int32_t>> Kept(const CompressSpec& spec) {
    const CallResult result = RunCall(world_, session_, spec);
    EXPECT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    return CompressOf(result).sequences[0].triage.kept;
  }

  EngineWorld world_{{}, nullptr, MakeCpuBackend(2)};
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_{session_, {.ropes = {WholeHead(4)}, .rope_of = {1, 1}}};
  const uint64_t region_ = cache_.lent().region_id();
};

TEST_F(ScorerTensors, LayersReadTheirOwnMoments) {
  const auto both = Kept(Expecting(1));
  ASSERT_EQ(both.size(), 4u);
  CompressSpec second = Expecting(2);
  second.layers = {1};
  for (auto* const tensor : {&*second.inputs.query_mean, &*second.inputs.query_covariance}) {
    tensor->offset += tensor->layer_stride;
    tensor->layers = 1;
  }
  const auto one = Kept(second);
  EXPECT_EQ(one, (std::vector<std::vector<int32_t>>{both[2], both[3]}));
}

TEST_F(ScorerTensors, ExpectedQueriesComeBehindTheNewestRow) {
  const auto plain = Kept(Expecting(1));
  CompressSpec dropped = Expecting(2);  // 1,000 rows have left, the others kept their rotation
  dropped.sequences[0].logical_len = 1040;
  dropped.sequences[0].total_dropped = 1000;
  const auto far = Kept(dropped);
  EXPECT_NE(far, plain);
  // Renumbered rows say where they are now.
  dropped.sequences[0].sequence_id = 3;
  dropped.header.key = NewKey();
  dropped.sequences[0].positions.emplace().first = 0;
  EXPECT_EQ(Kept(dropped), plain);
  std::vector<int32_t> list(40);
  std::iota(list.begin(), list.end(), 1000);
  dropped.sequences[0].sequence_id = 4;
  dropped.header.key = NewKey();
  dropped.sequences[0].positions->first.reset();
  dropped.sequences[0].positions->list = list;
  EXPECT_EQ(Kept(dropped), far);
}

TEST_F(ScorerTensors, ACovarianceOfAnotherSizeIsRefused) {
  CompressSpec spec = Expecting(1);
  spec.inputs.query_covariance = Tensor(1024, 3, 4);
  const CallResult result = RunCall(world_, session_, spec);
  EXPECT_EQ(ReasonOf(result.status), "geometry_invalid");
  EXPECT_EQ(GetErrorInfo(result.status)->field, "inputs.query_covariance.rows");
}

TEST_F(ScorerTensors, BothStagesOfCriticalKvFillTheFreeSlots) {
  CompressSpec spec = Expecting(1);
  spec.policy.score = {
      .scorer = Scorer::kCritical, .reduce = Reduce::kMean, .epsilon = 1e-3, .first_stage = 0.5};
  spec.policy.window.last = 4;
  spec.inputs = {};
  spec.inputs.source = AttentionSource::kQuery;
  spec.inputs.softmax_scale = 0.5;
  spec.inputs.q = Tensor(4096, 4, 4);
  spec.inputs.output_projection = Tensor(16384, 7, 6);
  spec.sequences[0].rows_count = 4;
  const CallResult result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  const TriageResult& triage = CompressOf(result).sequences[0].triage;
  for (const TriageLayerOutcome& layer : triage.layers) {
    EXPECT_EQ(layer.stage1, 2u * 5);
    EXPECT_EQ(layer.stage2, 2u * 5);
  }
}

}  // namespace
}  // namespace kvtriage
