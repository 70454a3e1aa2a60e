// SelectRecompute of several ranks: the rows of the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/core/splitmix64.h"
#include "kvtriage/kernels/backend.h"
#include "tests/support/wait_until.h"
#include "tests/unit/engine/rank_caches.h"

namespace kvtriage {
namespace {

constexpr uint32_t kRows = 24, kElems = 4, kHeads = 2;  // heads per rank

// Fresh and cached values of a rank in the tail of its cache's memory.
class GroupRecompute : public testing::Test {
 protected:
  // Multiples of 1/steps: with few of them rows tie, and every sum is exact.
  void Fill(uint32_t steps) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (uint64_t n = 0; n < 2 * size_t{kRows} * kHeads * kElems; ++n) {
        Numbers(rank)[n] = static_cast<float>(SplitMix64(5 + rank, n) % steps) / steps;
      }
    }
  }
  void SetUp() override { Fill(2); }
  float* Numbers(uint32_t rank) {
    WorkerCache& cache = ranks_.cache(rank);
    return reinterpret_cast<float*>(cache.lent().data() + cache.tail_offset());
  }
  float& Value(uint32_t rank, bool cached, uint32_t row, uint32_t head, uint32_t elem) {
    return Numbers(rank)[((uint64_t{cached} * kRows + row) * kHeads + head) * kElems + elem];
  }
  TensorSpec Tensor(uint32_t rank, bool cached) {
    TensorSpec tensor;
    tensor.region_id = ranks_.cache(rank).lent().region_id();
    tensor.offset = ranks_.cache(rank).tail_offset() +
                    uint64_t{cached} * kRows * kHeads * kElems * sizeof(float);
    tensor.rows = kRows;
    tensor.heads = kHeads;
    tensor.elems = kElems;
    tensor.elem_stride = sizeof(float);
    tensor.head_stride = kElems * tensor.elem_stride;
    tensor.row_stride = kHeads * tensor.head_stride;
    return tensor;
  }
  SelectRecomputeSpec Spec(uint32_t rank) {
    SelectRecomputeSpec spec;
    spec.header.key = NewKey();
    spec.fresh.tensor = Tensor(rank, false);
    spec.cached.tensor = Tensor(rank, true);
    spec.rows = kRows;
    spec.no_logits = true;
    spec.ratio = 0.3;
    spec.first_position = 0;
    spec.metric = metric_;
    spec.group = GroupSpec{key_, rank, 2, kHeads * rank, kHeads * 2};
    return spec;
  }
  PendingCall Do(uint32_t rank, SelectRecomputeSpec spec) {
    return Start(world_, ranks_.session(rank), std::move(spec));
  }
  static const RecomputeAnswer& AnswerOf(const CallResult& result) {
    return std::get<RecomputeAnswer>(result.answer->body);
  }

  // Of the whole model, in float64.
  std::vector<int32_t> Best() {
    std::vector<double> divergence;
    for (uint32_t row = 0; row < kRows; ++row) {
      double change = 0, old = 0;
      for (uint32_t n = 0; n < 2 * kHeads * kElems; ++n) {
        const uint32_t rank = n / (kHeads * kElems), head = n / kElems % kHeads, e = n % kElems;
        const double then = Value(rank, true, row, head, e);
        const double by = Value(rank, false, row, head, e) - then;
        change += by * by;
        old += then * then;
      }
      divergence.push_back(metric_ == DivergenceMetric::kRelative ? change / (old + 1e-6) : change);
    }
    std::vector<int32_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(),
                     [&](int32_t a, int32_t b) { return divergence[a] > divergence[b]; });
    const auto count = static_cast<size_t>(kRows * 0.3);
    if (metric_ == DivergenceMetric::kRelative) {
      EXPECT_GT(divergence[rows[count - 1]], divergence[rows[count]] * 1.0001) << "no clear cut";
    }
    rows.resize(count);
    std::sort(rows.begin(), rows.end());
    return rows;
  }

  EngineWorld world_{{}, nullptr, MakeCpuBackend(2)};
  RankCaches ranks_{world_, 2};
  GroupKey key_ = NewGroupKey();
  DivergenceMetric metric_ = DivergenceMetric::kL2;
};

TEST_F(GroupRecompute, BothRanksGetTheModelsRows) {
  for (const auto metric : {DivergenceMetric::kL2, DivergenceMetric::kRelative}) {
    metric_ = metric;
    Fill(metric == DivergenceMetric::kL2 ? 2 : 1024);
    key_ = NewGroupKey();
    PendingCall one = Do(1, Spec(1)), zero = Do(0, Spec(0));
    const CallResult first = zero.Get(), second = one.Get();
    ASSERT_EQ(ReasonOf(first.status), "ok") << first.status.ToString();
    ASSERT_EQ(ReasonOf(second.status), "ok") << second.status.ToString();
    EXPECT_EQ(AnswerOf(first).rows, Best());
    EXPECT_EQ(AnswerOf(second).rows, Best());
    EXPECT_EQ(AnswerOf(first).limits, AnswerOf(second).limits);
    EXPECT_EQ(AnswerOf(first).gap, AnswerOf(second).gap);
  }
}

// One rank has nothing to say: a threshold below the other's share finds its rows.
TEST_F(GroupRecompute, AThresholdIsOfTheSum) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t n = 0; n < 2 * kRows * kHeads * kElems; ++n) Numbers(rank)[n] = 1;
    Value(rank, false, 7, 0, 0) = 2;  // 1 on each rank, 2 in all
  }
  const auto spec = [&](uint32_t rank) {
    SelectRecomputeSpec own = Spec(rank);
    own.ratio.reset();
    own.threshold = 1.5;
    return own;
  };
  PendingCall zero = Do(0, spec(0)), one = Do(1, spec(1));
  EXPECT_EQ(AnswerOf(zero.Get()).rows, std::vector<int32_t>{7});
  EXPECT_EQ(AnswerOf(one.Get()).rows, std::vector<int32_t>{7});
}

TEST_F(GroupRecompute, ARowDamagedOnOneRankIsForcedOnAll) {
  Value(1, true, 4, 1, 2) = std::numeric_limits<float>::quiet_NaN();
  PendingCall zero = Do(0, Spec(0)), one = Do(1, Spec(1));
  for (PendingCall* call : {&zero, &one}) {
    const CallResult result = call->Get();
    ASSERT_EQ(ReasonOf(result.status), "ok");
    EXPECT_EQ(AnswerOf(result).nonfinite_rows, 1u);
    EXPECT_EQ(AnswerOf(result).must, 1u);
    EXPECT_TRUE(std::binary_search(AnswerOf(result).rows.begin(), AnswerOf(result).rows.end(), 4));
  }
}

// Both hold the model's two heads.
TEST_F(GroupRecompute, HeadsOfTwoRanksCountOnce) {
  std::memcpy(Numbers(1), Numbers(0), 2 * sizeof(float) * kRows * kHeads * kElems);
  const auto spec = [&](uint32_t rank) {
    SelectRecomputeSpec own = Spec(rank);
    own.group->first_kv_head = 0;
    own.group->total_kv_heads = kHeads;
    own.ratio.reset();
    own.threshold = 2.5;
    return own;
  };
  SelectRecomputeSpec lone = spec(0);
  lone.group.reset();
  const CallResult alone = Do(0, lone).Get();
  PendingCall zero = Do(0, spec(0)), one = Do(1, spec(1));
  EXPECT_EQ(AnswerOf(zero.Get()).rows, AnswerOf(alone).rows);
  EXPECT_EQ(AnswerOf(one.Get()).rows, AnswerOf(alone).rows);
}

TEST_F(GroupRecompute, RanksThatDifferEnd) {
  const struct {
    const char* field;
    std::function<void(SelectRecomputeSpec&)> change;
  } cases[] = {
      {"must_le", [](SelectRecomputeSpec& s) { s.prefix = 1; }},
      {"must_le", [](SelectRecomputeSpec& s) { s.must = {3}; }},
      {"metric", [](SelectRecomputeSpec& s) { s.metric = DivergenceMetric::kRelative; }},
      {"ratio", [](SelectRecomputeSpec& s) { s.ratio = 0.4; }},
      {"previous",
       [](SelectRecomputeSpec& s) {
         s.previous = PreviousHkvd{{1, 2}, 9};
       }},
      {"positions", [](SelectRecomputeSpec& s) { s.first_position = 1; }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.field);
    key_ = NewGroupKey();
    SelectRecomputeSpec other = Spec(1);
    c.change(other);
    PendingCall zero = Do(0, Spec(0));
    ASSERT_TRUE(WaitUntil([&] { return world_.engine().waiting_ranks() == 1; }));
    const CallResult second = Do(1, other).Get();
    EXPECT_EQ(ReasonOf(second.status), "group_mismatch");
    EXPECT_EQ(FieldOf(second.status), c.field);
    EXPECT_EQ(ReasonOf(zero.Get().status), "group_mismatch");
  }
}

TEST_F(GroupRecompute, AnotherKindOfCallIsAMismatch) {
  PendingCall zero = Do(0, Spec(0));
  PendingCall one = ranks_.Start(1, ranks_.Spec(1, key_, 6));
  EXPECT_EQ(ReasonOf(zero.Get().status), "group_mismatch");
  EXPECT_EQ(ReasonOf(one.Get().status), "group_mismatch");
}

}  // namespace
}  // namespace kvtriage
