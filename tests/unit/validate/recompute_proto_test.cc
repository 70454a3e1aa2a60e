#include "service/validate/recompute_proto.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Request = v1::SelectRecomputeRequest;
using Reason = ErrorReason;
using ::testing::ElementsAre;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

struct Row {
  const char* name;
  std::function<void(Request&)> change;
  absl::StatusCode code;
  Reason reason;
  const char* field;
};

void ExpectRows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Request request = ValidSelectRecompute();
    row.change(request);
    ExpectRefusal(ParseSelectRecompute(request).status(), row.code, row.reason, row.field);
  }
}

TEST(ParseSelectRecompute, GivesThePlainValues) {
  const auto spec = ParseSelectRecompute(ValidSelectRecompute());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rows, 10u);
  EXPECT_EQ(spec->prefix, 4u);
  EXPECT_EQ(spec->suffix, 1u);
  EXPECT_THAT(spec->cached_bitmap, ElementsAre(0xFF, 0x03));
  EXPECT_THAT(spec->must, ElementsAre(5, 9));
  EXPECT_FALSE(spec->no_logits);
  EXPECT_EQ(spec->metric, DivergenceMetric::kL2);
  EXPECT_EQ(spec->ratio, 1.0 / 3);
  EXPECT_FALSE(spec->threshold.has_value());
  EXPECT_EQ(spec->first_position, uint64_t{0});
  ASSERT_TRUE(spec->fresh.tensor.has_value());
  EXPECT_EQ(spec->fresh.first_row, 4u);
  EXPECT_FALSE(spec->cached.tensor.has_value());
  EXPECT_EQ(spec->cached.layer, 1u);
  EXPECT_THAT(spec->cached.table, ElementsAre(3));
}

TEST(ParseSelectRecompute, TakesThresholdsAndPositionLists) {
  Request request = ValidSelectRecompute();
  request.set_threshold(9);
  request.set_metric(v1::DIVERGENCE_METRIC_V_RELATIVE);
  request.mutable_positions()->mutable_list()->set_inline_le(
      Int32Bytes({0, 1, 2, 3, 4, 4, 4, 8, 9, 10}));
  request.set_no_logits(true);
  request.clear_cached_bitmap();
  request.clear_must_le();
  const auto spec = ParseSelectRecompute(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->threshold, 9.0);
  EXPECT_FALSE(spec->ratio.has_value());
  EXPECT_EQ(spec->metric, DivergenceMetric::kRelative);
  EXPECT_EQ(spec->positions.size(), 10u);
  EXPECT_FALSE(spec->first_position.has_value());
  EXPECT_TRUE(spec->no_logits);
}

// Kinds: a ratio of zero that recomputes; everything hits.
// https://github.com/LMCache/LMCache/issues/305 https://github.com/LMCache/LMCache/issues/938
TEST(ParseSelectRecompute, EdgesOfTheAmountAreAllowed) {
  for (const double ratio : {0.0, 1e-9, 0.165, 1.0}) {
    Request request = ValidSelectRecompute();
    request.set_ratio(ratio);
    EXPECT_TRUE(ParseSelectRecompute(request).ok()) << ratio;
  }
  Request all_suffix = ValidSelectRecompute();
  all_suffix.set_suffix(0xFFFFFFFF);
  EXPECT_TRUE(ParseSelectRecompute(all_suffix).ok());
}

TEST(ParseSelectRecompute, AnEmptySequenceNeedsNoSources) {
  Request request = ValidSelectRecompute();
  request.set_rows(0);
  request.set_prefix(0);
  request.clear_cached_bitmap();
  request.clear_must_le();
  request.clear_fresh();
  request.clear_cached();
  request.clear_previous();
  request.clear_gather();
  EXPECT_TRUE(ParseSelectRecompute(request).ok());
}

TEST(SelectRecomputeRefusals, Rows) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  ExpectRows({
      {"no header", [](Request& r) { r.clear_header(); }, kInvalid, Reason::kFieldMissing,
       "header"},
      {"too many rows", [](Request& r) { r.set_rows((1u << 24) + 1); }, kInvalid, Reason::kTooMany,
       "rows"},
      {"prefix past the end", [](Request& r) { r.set_prefix(11); }, kInvalid, Reason::kFieldInvalid,
       "prefix"},
      {"bitmap too short", [](Request& r) { r.set_cached_bitmap("a"); }, kInvalid,
       Reason::kFieldInvalid, "cached_bitmap"},
      // Kind: rows in wrong coordinates. https://github.com/LMCache/LMCache-Ascend/issues/277
      {"must inside the prefix",
       [](Request& r) {
         r.set_must_le(Int32Bytes({3, 5}));
       },
       kInvalid, Reason::kIndexInvalid, "must_le"},
      {"must unsorted",
       [](Request& r) {
         r.set_must_le(Int32Bytes({6, 5}));
       },
       kInvalid, Reason::kIndexInvalid, "must_le"},
      {"must outside", [](Request& r) { r.set_must_le(Int32Bytes({10})); }, kOutOfRange,
       Reason::kIndexOutOfRange, "must_le"},
      {"must not int32", [](Request& r) { r.set_must_le("abc"); }, kInvalid, Reason::kFieldInvalid,
       "must_le"},
      {"no metric", [](Request& r) { r.clear_metric(); }, kInvalid, Reason::kEnumUnspecified,
       "metric"},
      {"unknown metric", [](Request& r) { r.set_metric(static_cast<v1::DivergenceMetric>(4)); },
       kInvalid, Reason::kEnumUnspecified, "metric"},
      {"no amount", [](Request& r) { r.clear_amount(); }, kInvalid, Reason::kFieldMissing, "ratio"},
      {"ratio above 1", [](Request& r) { r.set_ratio(1.01); }, kInvalid, Reason::kFieldInvalid,
       "ratio"},
      {"negative ratio", [](Request& r) { r.set_ratio(-0.01); }, kInvalid, Reason::kFieldInvalid,
       "ratio"},
      {"NaN ratio", [nan](Request& r) { r.set_ratio(nan); }, kInvalid, Reason::kFieldInvalid,
       "ratio"},
      {"NaN threshold", [nan](Request& r) { r.set_threshold(nan); }, kInvalid,
       Reason::kFieldInvalid, "threshold"},
      {"infinite threshold", [inf](Request& r) { r.set_threshold(inf); }, kInvalid,
       Reason::kFieldInvalid, "threshold"},
      {"no positions", [](Request& r) { r.clear_positions(); }, kInvalid, Reason::kFieldMissing,
       "positions"},
      {"positions wrap",
       [](Request& r) { r.mutable_positions()->set_first_position(~uint64_t{0} - 3); }, kInvalid,
       Reason::kFieldInvalid, "positions.first_position"},
      {"a position missing",
       [](Request& r) {
         r.mutable_positions()->mutable_list()->set_inline_le(std::string(36, '\0'));
       },
       kInvalid, Reason::kFieldInvalid, "positions.list"},
      {"positions decrease",
       [](Request& r) {
         r.mutable_positions()->mutable_list()->set_inline_le(
             Int32Bytes({0, 1, 2, 3, 4, 3, 6, 7, 8, 9}));
       },
       kInvalid, Reason::kIndexInvalid, "positions.list"},
      {"negative position",
       [](Request& r) {
         r.mutable_positions()->mutable_list()->set_inline_le(
             Int32Bytes({-1, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
       },
       kInvalid, Reason::kFieldInvalid, "positions.list"},
  });
}

TEST(SelectRecomputeRefusals, Sources) {
  ExpectRows({
      {"no fresh rows", [](Request& r) { r.clear_fresh(); }, kInvalid, Reason::kFieldMissing,
       "fresh"},
      {"no cached rows", [](Request& r) { r.clear_cached(); }, kInvalid, Reason::kFieldMissing,
       "cached"},
      {"two layers",
       [](Request& r) { *r.mutable_fresh()->mutable_tensor() = PackedTensor(2, 6, 2, 64); },
       kInvalid, Reason::kFieldInvalid, "fresh.tensor.layers"},
      {"257 heads",
       [](Request& r) { *r.mutable_fresh()->mutable_tensor() = PackedTensor(1, 6, 257, 64); },
       kInvalid, Reason::kTooMany, "fresh.tensor.heads"},
      {"head size 577",
       [](Request& r) { *r.mutable_fresh()->mutable_tensor() = PackedTensor(1, 6, 2, 577); },
       kUnimplemented, Reason::kUnsupported, "fresh.tensor.elems"},
      {"tensor of 0 rows", [](Request& r) { r.mutable_fresh()->mutable_tensor()->set_rows(0); },
       kInvalid, Reason::kFieldInvalid, "fresh.tensor.rows"},
      {"paged rows start at 0", [](Request& r) { r.mutable_cached()->set_first_row(1); }, kInvalid,
       Reason::kFieldInvalid, "cached.first_row"},
      {"no cache", [](Request& r) { r.mutable_cached()->mutable_paged()->clear_cache_id(); },
       kInvalid, Reason::kFieldMissing, "cached.paged.cache_id"},
      {"keys for a metric of values",
       [](Request& r) { r.mutable_cached()->mutable_paged()->clear_values(); }, kInvalid,
       Reason::kFieldInvalid, "cached.paged.values"},
      {"values for the metric of keys",
       [](Request& r) { r.set_metric(v1::DIVERGENCE_METRIC_K_L2); }, kInvalid,
       Reason::kFieldInvalid, "cached.paged.values"},
      {"no table", [](Request& r) { r.mutable_cached()->mutable_paged()->clear_table(); }, kInvalid,
       Reason::kFieldMissing, "cached.paged.table"},
      {"other heads",
       [](Request& r) { *r.mutable_cached()->mutable_tensor() = PackedTensor(1, 10, 4, 64); },
       kInvalid, Reason::kGeometryInvalid, "cached.tensor.heads"},
      {"other head size",
       [](Request& r) { *r.mutable_cached()->mutable_tensor() = PackedTensor(1, 10, 2, 32); },
       kInvalid, Reason::kGeometryInvalid, "cached.tensor.elems"},
  });
}

TEST(ParseSelectRecompute, TakesKeysAPreviousLayerAndAGather) {
  Request request = ValidSelectRecompute();
  request.set_metric(v1::DIVERGENCE_METRIC_K_L2);
  request.mutable_cached()->mutable_paged()->clear_values();
  const auto spec = ParseSelectRecompute(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->metric, DivergenceMetric::kL2);
  EXPECT_FALSE(spec->cached.values);
  ASSERT_TRUE(spec->previous.has_value());
  EXPECT_THAT(spec->previous->hkvd, ElementsAre(4, 6, 8));
  EXPECT_EQ(spec->previous->base, 5u);
  ASSERT_TRUE(spec->gather.has_value());
  EXPECT_EQ(spec->gather->from.tensor->heads, 8u);
  EXPECT_EQ(spec->gather->to.rows, 6u);
}

TEST(SelectRecomputeRefusals, PreviousAndGather) {
  ExpectRows({
      {"previous rows unsorted",
       [](Request& r) {
         r.mutable_previous()->set_hkvd_le(Int32Bytes({6, 4}));
       },
       kInvalid, Reason::kIndexInvalid, "previous.hkvd_le"},
      {"previous row outside",
       [](Request& r) { r.mutable_previous()->set_hkvd_le(Int32Bytes({10})); }, kOutOfRange,
       Reason::kIndexOutOfRange, "previous.hkvd_le"},
      {"previous row in the prefix",
       [](Request& r) {
         r.mutable_previous()->set_hkvd_le(Int32Bytes({3, 6}));
       },
       kInvalid, Reason::kIndexInvalid, "previous.hkvd_le"},
      {"base below the rows chosen", [](Request& r) { r.mutable_previous()->set_base(2); },
       kInvalid, Reason::kFieldInvalid, "previous.base"},
      {"base above the rows", [](Request& r) { r.mutable_previous()->set_base(11); }, kInvalid,
       Reason::kFieldInvalid, "previous.base"},
      {"gather from nowhere", [](Request& r) { r.mutable_gather()->clear_from(); }, kInvalid,
       Reason::kFieldMissing, "gather.from"},
      {"gather to nowhere", [](Request& r) { r.mutable_gather()->clear_to(); }, kInvalid,
       Reason::kFieldMissing, "gather.to"},
      {"gather of two layers",
       [](Request& r) { *r.mutable_gather()->mutable_to() = PackedTensor(2, 6, 8, 64); }, kInvalid,
       Reason::kFieldInvalid, "gather.to.layers"},
      {"gather of 1,025 heads",
       [](Request& r) {
         *r.mutable_gather()->mutable_from()->mutable_tensor() = PackedTensor(1, 9, 1025, 4);
       },
       kInvalid, Reason::kTooMany, "gather.from.tensor.heads"},
  });
}

TEST(ParseSelectRecompute, ResolveIgnoresTheBody) {
  Request request;
  request.mutable_header()->set_idempotency_key("0123456789abcdef");
  request.mutable_header()->set_resolve(true);
  EXPECT_TRUE(ParseSelectRecompute(request).ok());
}

}  // namespace
}  // namespace kvtriage
