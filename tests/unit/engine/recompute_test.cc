// SelectRecompute: row classes, limits, and the way from a request's sources to an answer.
#include "service/engine/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

using Rows = std::vector<int32_t>;

SelectRecomputeSpec Plain(uint32_t rows) {
  SelectRecomputeSpec spec;
  spec.header.key = NewKey();
  spec.rows = rows;
  spec.no_logits = true;
  spec.ratio = 0.5;
  spec.first_position = 0;
  return spec;
}

TEST(RowClasses, PrefixIsInNeither) {
  SelectRecomputeSpec spec = Plain(10);
  spec.prefix = 4;
  RowClasses classes = ClassifyRows(spec);
  EXPECT_EQ(classes.must, Rows{});
  EXPECT_EQ(classes.candidates, (Rows{4, 5, 6, 7, 8, 9}));
  spec.suffix = 2;
  spec.must = {5};
  spec.cached_bitmap = {0b01111110, 0b11};  // 0 and 7 did not come from the cache
  classes = ClassifyRows(spec);
  EXPECT_EQ(classes.must, (Rows{5, 7, 8, 9}));
  EXPECT_EQ(classes.candidates, (Rows{4, 6}));
}

TEST(RowClasses, LastRowIsNeededForItsLogits) {
  SelectRecomputeSpec spec = Plain(10);
  spec.no_logits = false;
  EXPECT_EQ(ClassifyRows(spec).must, (Rows{9}));
  spec.prefix = 10;
  EXPECT_EQ(ClassifyRows(spec).must, (Rows{9}));
  EXPECT_EQ(ClassifyRows(spec).candidates, Rows{});
  spec.no_logits = true;
  EXPECT_EQ(ClassifyRows(spec).must, Rows{});
}

TEST(RowClasses, SuffixOfEverythingLeavesNoCandidate) {
  for (const uint32_t suffix : {3u, 4u, UINT32_MAX}) {
    SelectRecomputeSpec spec = Plain(3);
    spec.suffix = suffix;
    EXPECT_EQ(ClassifyRows(spec).must, (Rows{0, 1, 2}));
    spec.prefix = 1;
    EXPECT_EQ(ClassifyRows(spec).must, (Rows{1, 2}));
  }
  SelectRecomputeSpec empty = Plain(0);
  empty.no_logits = false;
  EXPECT_EQ(ClassifyRows(empty).must, Rows{});
}

TEST(KeyLimits, CountKeysAtPositionsUpToTheOwn) {
  SelectRecomputeSpec spec = Plain(6);
  EXPECT_EQ(KeyLimits(spec, {0, 3, 5}), (Rows{1, 4, 6}));
  spec.first_position.reset();
  spec.positions = {0, 1, 1, 1, 4, 9};
  EXPECT_EQ(KeyLimits(spec, {0, 1, 2, 3, 4, 5}), (Rows{1, 4, 4, 4, 5, 6}));
  EXPECT_EQ(KeyLimits(spec, {2}), (Rows{4}));
}

// One head of one float per row: fresh rows hold sqrt(divergence), cached ones 0.
class Recompute : public testing::Test {
 protected:
  static constexpr uint64_t kFresh = 0, kCached = 4096;

  SelectRecomputeSpec Spec(const std::vector<float>& divergence) {
    SelectRecomputeSpec spec = Plain(static_cast<uint32_t>(divergence.size()));
    auto* fresh = reinterpret_cast<float*>(lent_.data() + kFresh);
    auto* cached = reinterpret_cast<float*>(lent_.data() + kCached);
    for (size_t i = 0; i < divergence.size(); ++i) {
      fresh[i] = std::sqrt(divergence[i]);
      cached[i] = 0;
    }
    spec.fresh.tensor = At(kFresh, spec.rows);
    spec.cached.tensor = At(kCached, spec.rows);
    return spec;
  }
  TensorSpec At(uint64_t offset, uint32_t rows) const {
    TensorSpec tensor;
    tensor.region_id = lent_.region_id();
    tensor.offset = offset;
    tensor.rows = rows;
    tensor.row_stride = tensor.head_stride = tensor.elem_stride = 4;
    return tensor;
  }
  CallResult Do(SelectRecomputeSpec spec) {
    spec.header.key = NewKey();
    return Start(world_, session_, std::move(spec)).Get();
  }
  RecomputeAnswer Answer(SelectRecomputeSpec spec) {
    const CallResult result = Do(std::move(spec));
    EXPECT_EQ(ReasonOf(result.status), "ok");
    return std::get<RecomputeAnswer>(result.answer->body);
  }
  Rows RowsOf(const SelectRecomputeSpec& spec) { return Answer(spec).rows; }

  EngineWorld world_;
  std::shared_ptr<Session> session_ = world_.Attach();
  Lent lent_{session_, 1u << 16};
};

// Rows behind a prefix hit are absolute. https://github.com/LMCache/LMCache-Ascend/issues/277
TEST_F(Recompute, RowsStayInAbsoluteCoordinates) {
  SelectRecomputeSpec spec = Spec({0, 9, 9, 0, 0, 9, 0, 0, 7, 0});
  spec.prefix = 4;
  for (const auto& [ratio, rows] : std::vector<std::pair<double, Rows>>{
           {0.0, {}}, {1.0 / 3, {5, 8}}, {0.5, {4, 5, 8}}, {1.0, {4, 5, 6, 7, 8, 9}}}) {
    spec.ratio = ratio;
    const RecomputeAnswer answer = Answer(spec);
    EXPECT_EQ(answer.rows, rows);
    EXPECT_EQ(answer.base, 6u);
  }
}

// Everything was cached: the last row is still needed.
// https://github.com/LMCache/LMCache/issues/938
TEST_F(Recompute, EverythingHits) {
  SelectRecomputeSpec spec = Spec({1, 2, 3, 4});
  spec.ratio = 0;
  EXPECT_EQ(RowsOf(spec), Rows{});
  spec.no_logits = false;
  EXPECT_EQ(RowsOf(spec), (Rows{3}));
  spec.cached_bitmap = {0b0111};  // one new token
  EXPECT_EQ(RowsOf(spec), (Rows{3}));
}

// A ratio that rounds to nothing recomputes what must be and no more.
// https://github.com/LMCache/LMCache/issues/305
TEST_F(Recompute, RatioZeroRecomputesOnlyWhatMust) {
  SelectRecomputeSpec spec = Spec({1, 2, 3, 4, 5, 6, 7, 8});
  spec.cached_bitmap = {0b11011011};
  for (const double ratio : {0.0, 0.165, 1e-9}) {
    spec.ratio = ratio;
    const RecomputeAnswer answer = Answer(spec);
    EXPECT_EQ(answer.rows, (Rows{2, 5}));
    EXPECT_EQ(answer.must, 2u);
    EXPECT_EQ(answer.hkvd, 0u);
    EXPECT_EQ(answer.base, 6u);
    EXPECT_EQ(answer.divergence_share, 0);
  }
  spec.ratio = 1;
  EXPECT_EQ(RowsOf(spec), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  spec.ratio = 0;
  spec.no_logits = false;
  EXPECT_EQ(RowsOf(spec), (Rows{2, 5, 7}));
}

TEST_F(Recompute, AnswerTellsMustFromChosenAndWhatWasLeft) {
  SelectRecomputeSpec spec = Spec({1, 16, 4, 9, 2});
  spec.must = {2};
  RecomputeAnswer answer = Answer(spec);
  EXPECT_EQ(answer.rows, (Rows{1, 2, 3}));
  EXPECT_EQ(answer.is_must, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(answer.limits, (Rows{2, 3, 4}));
  EXPECT_EQ(answer.hkvd, 2u);
  EXPECT_EQ(answer.must, 1u);
  EXPECT_EQ(answer.base, 4u);
  EXPECT_NEAR(answer.gap, 2.0 / 9, 1e-6);
  EXPECT_NEAR(answer.divergence_share, 25.0 / 28, 1e-6);
  EXPECT_LT(answer.left_divergence, 0);  // not known
  spec.ratio.reset();
  spec.threshold = 8.9;
  EXPECT_EQ(RowsOf(spec), (Rows{1, 2, 3}));
  spec.metric = DivergenceMetric::kRelative;
  spec.threshold = 8.9e6;
  EXPECT_NEAR(Answer(spec).left_divergence, 2e6, 1);
}

TEST_F(Recompute, DamagedRowsAreForced) {
  SelectRecomputeSpec spec = Spec({1, 16, 4, 9, 2});
  auto* cached = reinterpret_cast<float*>(lent_.data() + kCached);
  cached[0] = std::numeric_limits<float>::quiet_NaN();
  cached[4] = std::numeric_limits<float>::infinity();
  const RecomputeAnswer answer = Answer(spec);
  EXPECT_EQ(answer.rows, (Rows{0, 1, 4}));
  EXPECT_EQ(answer.is_must, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(answer.nonfinite_rows, 2u);
  EXPECT_EQ(answer.base, 3u);
  EXPECT_EQ(answer.must, 2u);
}

TEST_F(Recompute, RowsThatAreNoCandidatesAreNotNeeded) {
  SelectRecomputeSpec spec = Spec({0, 0, 9, 1, 0, 0});
  spec.prefix = 2;
  spec.suffix = 2;
  spec.fresh.tensor = At(kFresh + 8, 2);  // rows 2 and 3 only
  spec.fresh.first_row = 2;
  spec.cached.tensor = At(kCached, 4);
  EXPECT_EQ(RowsOf(spec), (Rows{2, 4, 5}));
  spec.fresh.first_row = 3;
  CallResult result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "field_invalid");
  EXPECT_EQ(FieldOf(result.status), "fresh.tensor.rows");
  spec.fresh.first_row = 2;
  spec.cached.tensor = At(kCached, 3);
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "field_invalid");
  EXPECT_EQ(FieldOf(result.status), "cached.tensor.rows");
  spec.suffix = 4;  // no candidate, no source
  spec.fresh = spec.cached = {};
  EXPECT_EQ(RowsOf(spec), (Rows{2, 3, 4, 5}));
  EXPECT_EQ(RowsOf(Plain(0)), Rows{});
}

TEST_F(Recompute, PagedAndDenseSourcesAgree) {
  WorkerCache cache(session_, {.heads = {1, 2}, .dtype = DType::kF32});
  // Real numbers, not random bits.
  for (uint64_t i = 0; i < cache.tail_offset() / 4; ++i) {
    const float value = static_cast<float>(i * 7 % 13) - 6;
    std::memcpy(cache.lent().data() + 4 * i, &value, 4);
  }
  SelectRecomputeSpec spec = Plain(21);
  spec.ratio = 0.3;
  const Rows table = {5, 2, 9, 0, 7, 1};
  spec.cached.cache_id = cache.id();
  spec.cached.layer = 1;
  spec.cached.first_slot = 2;
  spec.cached.table = table;
  TensorSpec dense;
  dense.region_id = cache.lent().region_id();
  dense.offset = cache.tail_offset();
  dense.rows = 21;
  dense.heads = 2;
  dense.elems = 6;
  dense.elem_stride = 4;
  dense.head_stride = 24;
  dense.row_stride = 48;
  spec.fresh.tensor = dense;
  // Fresh = cached but for two rows.
  const ViewSpec& v = cache.spec().layers[1].v;
  for (uint32_t p = 0; p < 21; ++p) {
    for (uint32_t h = 0; h < 2; ++h) {
      const uint64_t slot = 2 + p;
      const uint64_t from = v.offset +
                            static_cast<uint64_t>(table[slot / 4]) * v.layout.block_stride +
                            h * v.layout.head_stride + slot % 4 * v.layout.slot_stride;
      std::memcpy(cache.lent().data() + dense.offset + p * 48 + h * 24, cache.lent().data() + from,
                  24);
    }
  }
  for (const uint32_t p : {4u, 17u}) {
    const float odd = 100;
    std::memcpy(cache.lent().data() + dense.offset + p * 48, &odd, 4);
  }
  spec.ratio.reset();
  spec.threshold = 1;
  EXPECT_EQ(RowsOf(spec), (Rows{4, 17}));

  spec.cached.table.pop_back();
  CallResult result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "table_too_short");
  EXPECT_EQ(FieldOf(result.status), "cached.paged.table");
  spec.cached.table.push_back(16);
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "block_out_of_range");
  EXPECT_EQ(GetErrorInfo(result.status)->index, 5u);
  spec.cached.table.back() = 1;
  spec.cached.layer = 2;
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "index_out_of_range");
  EXPECT_EQ(FieldOf(result.status), "cached.paged.layer");
  spec.cached.layer = 0;
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "geometry_invalid");
  EXPECT_EQ(FieldOf(result.status), "cached");
  spec.cached.cache_id ^= 1;
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "memory_unknown");
  EXPECT_EQ(FieldOf(result.status), "cached.paged.cache_id");
}

TEST_F(Recompute, BadSourcesAreNamed) {
  SelectRecomputeSpec spec = Spec({1, 2, 3, 4});
  spec.fresh.tensor->region_id ^= 1;
  CallResult result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "memory_unknown");
  EXPECT_EQ(FieldOf(result.status), "fresh.tensor");
  spec = Spec({1, 2, 3, 4});
  spec.cached.tensor->offset = lent_.bytes() - 12;
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "range_out_of_region");
  EXPECT_EQ(FieldOf(result.status), "cached.tensor");
  spec = Spec({1, 2, 3, 4});
  spec.prefix = 2;
  spec.must = {1};
  result = Do(spec);
  EXPECT_EQ(ReasonOf(result.status), "index_invalid");
  EXPECT_EQ(FieldOf(result.status), "must_le");
  spec.must = {4};
  EXPECT_EQ(ReasonOf(Do(spec).status), "index_out_of_range");
}

// Behind a first check layer only its rows are candidates, and the ratio refers to its base.
TEST_F(Recompute, GradualFilteringStaysInside) {
  SelectRecomputeSpec spec = Spec({5, 1, 4, 2, 8, 3, 7, 6});
  spec.ratio = 0.75;
  const RecomputeAnswer first = Answer(spec);
  EXPECT_EQ(first.rows, (Rows{0, 2, 4, 5, 6, 7}));
  spec = Spec({6, 7, 3, 8, 2, 4, 1, 5});
  spec.ratio = 0.25;
  spec.previous = PreviousHkvd{first.rows, first.base};
  RecomputeAnswer second = Answer(spec);
  EXPECT_EQ(second.rows, (Rows{0, 7}));  // rows 1 and 3 diverge more, but are out
  EXPECT_EQ(second.base, 8u);
  spec.ratio = 1.0;  // more than the first layer chose
  EXPECT_EQ(Answer(spec).rows, first.rows);
  spec.must = {3};
  EXPECT_EQ(Answer(spec).rows, (Rows{0, 2, 3, 4, 5, 6, 7}));
  spec.previous = PreviousHkvd{{}, 8};
  EXPECT_EQ(Answer(spec).rows, (Rows{3}));
}

TEST_F(Recompute, GathersTheSelectedRows) {
  constexpr uint64_t kFrom = 8192, kTo = 12288;
  SelectRecomputeSpec spec = Spec({1, 9, 4, 9, 0, 81});
  auto* const rows = reinterpret_cast<float*>(lent_.data() + kFrom);
  auto* const gathered = reinterpret_cast<float*>(lent_.data() + kTo);
  for (int i = 0; i < 6; ++i) rows[i] = static_cast<float>(10 + i);
  for (int i = 0; i < 6; ++i) gathered[i] = -1;
  spec.gather.emplace().from.tensor = At(kFrom, 4);
  spec.gather->from.first_row = 2;
  spec.gather->to = At(kTo, 3);
  spec.must = {3, 5};
  spec.ratio = 0;
  EXPECT_EQ(RowsOf(spec), (Rows{3, 5}));
  EXPECT_EQ(gathered[0], 11);  // row 3 stands at index 1 of a tensor that begins with row 2
  EXPECT_EQ(gathered[1], 13);
  EXPECT_EQ(gathered[2], -1);
  const auto refused = [&](const SelectRecomputeSpec& bad, const char* reason, const char* field) {
    const CallResult result = Do(bad);
    EXPECT_EQ(ReasonOf(result.status), reason);
    EXPECT_EQ(FieldOf(result.status), field);
    EXPECT_EQ(gathered[0], 11);
  };
  SelectRecomputeSpec bad = spec;
  bad.gather->to.rows = 1;
  refused(bad, "destination_too_small", "gather.to.rows");
  bad = spec;
  bad.gather->to.dtype = DType::kF16;
  refused(bad, "geometry_invalid", "gather.to.dtype");
  bad = spec;
  bad.gather->from.first_row = 4;
  refused(bad, "field_invalid", "gather.from.tensor.rows");
  bad = spec;
  bad.gather->to = At(kFrom + 4, 3);
  refused(bad, "view_overlap", "gather.to");
  bad = spec;
  bad.gather->to = At(kCached, 3);
  refused(bad, "view_overlap", "gather.to");
  bad = spec;
  bad.gather->to.region_id = 1;
  refused(bad, "memory_unknown", "gather.to");
  bad = spec;
  bad.gather->to.region_id = lent_.LendAgain(/*writable=*/false);
  refused(bad, "region_read_only", "gather.to");
}

TEST_F(Recompute, KeysOfACacheAreComparedAsTheyStand) {
  WorkerCache cache(session_, {.heads = {1}, .dk = 1, .dv = 1});
  auto* const keys = reinterpret_cast<float*>(cache.lent().data());
  for (int i = 0; i < 64; ++i) keys[i] = 0;
  SelectRecomputeSpec spec = Spec({1, 9, 4, 0});
  spec.cached = {};
  spec.cached.cache_id = cache.id();
  spec.cached.values = false;
  spec.cached.table = {2};
  spec.ratio = 0.25;
  EXPECT_EQ(RowsOf(spec), (Rows{1}));
  keys[2 * 4 + 1] = 3;  // block 2, slot 1: equal to the fresh row now
  EXPECT_EQ(RowsOf(spec), (Rows{2}));
}

}  // namespace
}  // namespace kvtriage
