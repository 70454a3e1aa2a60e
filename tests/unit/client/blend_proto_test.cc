// Rerotate, Fuse and gradual selection as messages.
#include "client/cpp/blend_proto.h"

#include "client/cpp/int32_bytes.h"
#include "client/cpp/recompute_proto.h"
#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

using Rows = std::vector<int32_t>;

TEST(BlendProto, SendsWhatARerotateSays) {
  RerotateRequest request;
  request.layers = {1, 3};
  request.sequence.sequence_id = 7;
  request.sequence.positions = uint64_t{40};
  request.first_row = 2;
  request.rows = 3;
  request.new_positions = Rows{5, 6, 9};
  request.angles = AngleMode::kFp32Table;
  v1::RerotateRequest sent = ToProto(request, 3, MemoryIds());
  EXPECT_EQ(*FromBytes(sent.layers_le()), (Rows{1, 3}));
  EXPECT_EQ(sent.sequence().positions().first_position(), 40u);
  EXPECT_EQ(sent.first_row(), 2u);
  EXPECT_EQ(sent.rows(), 3u);
  EXPECT_EQ(*FromBytes(sent.new_positions().list().inline_le()), (Rows{5, 6, 9}));
  EXPECT_EQ(sent.angles(), v1::ANGLE_MODE_FP32_TABLE);
  EXPECT_EQ(sent.act().in_place().ledger_slot(), 3u);
  request.act = CopyTo{};
  EXPECT_TRUE(ToProto(request, 3, MemoryIds()).act().has_copy_to());
}

TEST(BlendProto, AFuseWithoutRowsReplacesAll) {
  FuseRequest request;
  request.keys.region = Region{1};
  request.keys.rows = 9;
  v1::FuseRequest sent = ToProto(request, 2, MemoryIds());
  EXPECT_EQ(sent.write_back(), v1::FuseRequest::WRITE_BACK_FULL);
  EXPECT_TRUE(sent.rows_le().empty());
  EXPECT_EQ(sent.keys().rows(), 9u);
  EXPECT_FALSE(sent.has_values());
  EXPECT_EQ(sent.in_place().ledger_slot(), 2u);
  request.rows = Rows{4, 8};
  sent = ToProto(request, 2, MemoryIds());
  EXPECT_EQ(sent.write_back(), v1::FuseRequest::WRITE_BACK_PARTIAL);
  EXPECT_EQ(*FromBytes(sent.rows_le()), (Rows{4, 8}));
}

TEST(BlendProto, GradualSelectionAndItsGather) {
  RecomputeRequest request;
  request.fresh = DenseRows{};
  request.cached = PagedRows{{}, 1, {3}, 0, /*values=*/false};
  request.metric = DivergenceMetric::kKL2;
  request.previous = PreviousHkvd{{4, 6}, 9};
  request.gather = QueryGather{DenseRows{{}, 2}, {}};
  request.gather->to.rows = 5;
  const v1::SelectRecomputeRequest sent = ToProto(request, MemoryIds());
  EXPECT_FALSE(sent.cached().paged().values());
  EXPECT_EQ(sent.metric(), v1::DIVERGENCE_METRIC_K_L2);
  EXPECT_EQ(*FromBytes(sent.previous().hkvd_le()), (Rows{4, 6}));
  EXPECT_EQ(sent.previous().base(), 9u);
  EXPECT_EQ(sent.gather().from().first_row(), 2u);
  EXPECT_EQ(sent.gather().to().rows(), 5u);
  RecomputeResult result;
  result.rows = {1, 4, 9};
  result.is_must = {true, false, false};
  EXPECT_EQ(result.hkvd_rows(), (Rows{4, 9}));
}

}  // namespace
}  // namespace kvtriage::client
