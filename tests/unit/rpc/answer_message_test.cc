#include "service/rpc/answer_message.h"

#include <cstring>
#include <memory>

#include "gtest/gtest.h"
#include "service/engine/answer_size.h"

namespace kvtriage {
namespace {

std::vector<int32_t> Int32s(const std::string& bytes) {
  std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename Body>
CallResult ResultOf(Body body) {
  auto answer = std::make_shared<Answer>();
  answer->job_id = 77;
  answer->timing.queue = 1;
  answer->timing.score = 2;
  answer->timing.select = 3;
  answer->timing.move = 4;
  answer->timing.total = 11;
  answer->body = std::move(body);
  CallResult result;
  result.answer = std::move(answer);
  result.replayed = true;
  return result;
}

CompressAnswer TwoLayers() {
  CompressAnswer answer;
  answer.policy.score.scorer = Scorer::kRecency;
  answer.policy.budget.kept_tokens = 3;
  answer.policy.granularity = Granularity::kPerHead;
  answer.layers = 2;
  answer.layer_indexes = {0, 5};
  answer.heads = {1, 2};
  SequenceOutcome outcome;
  outcome.sequence_id = 9;
  outcome.kv_revision = 2;
  outcome.logical_len = outcome.next_position = 20;
  outcome.physical_len = 10;
  outcome.kept = 3;
  outcome.blocks_used = 1;
  outcome.rewritten_bitmap = {0x01};
  outcome.triage.kept = {{0, 8, 9}, {1, 2}, {7}};
  outcome.triage.layers = {{.first_list = 0, .list_step = 1, .kept = 3, .trimmed = 1},
                           {.first_list = 1,
                            .list_step = 1,
                            .kept = 2,
                            .nonfinite_tokens = 4,
                            .skipped_rows = 5,
                            .stage1 = 6,
                            .stage2 = 7,
                            .lse_suspect = true}};
  LayerQuality measured;
  measured.has_mass = true;
  measured.mass_mean = 0.75;
  measured.mass_p5 = 0.5;
  measured.head_mass_mean = {0.75};
  measured.head_mass_low = {0.25};
  measured.has_error = true;
  measured.error = 0.125;
  measured.error_p95 = 0.25;
  measured.head_error = {0.125};
  measured.head_error_high = {0.5};
  outcome.triage.quality = {measured, LayerQuality{}};
  answer.sequences.push_back(std::move(outcome));
  return answer;
}

TEST(AnswerMessage, CompressNamesListsLayersAndLengths) {
  v1::CompressResponse response;
  FillCompressResponse(ResultOf(TwoLayers()), 42, response);
  EXPECT_EQ(response.header().server_epoch(), 42u);
  EXPECT_EQ(response.header().job_id(), 77u);
  EXPECT_TRUE(response.header().replayed());
  EXPECT_EQ(response.header().timing().total(), 11u);
  EXPECT_TRUE(response.policy().scorer().has_recency());
  ASSERT_EQ(response.results_size(), 1);
  const v1::SequenceResult& result = response.results(0);
  EXPECT_EQ(result.kept(), 3u);
  EXPECT_EQ(result.dropped(), 7u);
  EXPECT_EQ(result.total_dropped(), 17u);
  EXPECT_EQ(result.next_position(), 20u);
  EXPECT_EQ(result.rewritten_bitmap(), std::string("\x01", 1));
  EXPECT_FALSE(result.noop());
  EXPECT_EQ(result.kept_sets().granularity(), v1::GRANULARITY_PER_HEAD);
  EXPECT_EQ(result.kept_sets().lists(), 3u);
  EXPECT_EQ(Int32s(result.kept_sets().counts_le()), (std::vector<int32_t>{3, 2, 1}));
  EXPECT_EQ(Int32s(result.kept_sets().indices_le()), (std::vector<int32_t>{0, 8, 9, 1, 2, 7}));
  ASSERT_EQ(result.layers_size(), 2);
  EXPECT_EQ(result.layers(0).trimmed(), 1u);
  EXPECT_EQ(result.layers(1).layer(), 5u);
  EXPECT_EQ(result.layers(1).dropped(), 8u);
  EXPECT_EQ(result.layers(1).nonfinite_tokens(), 4u);
  EXPECT_EQ(result.layers(1).stage1(), 6u);
  EXPECT_EQ(result.layers(1).stage2(), 7u);
  EXPECT_TRUE(result.layers(1).lse_suspect());
}

// Rows {0, 8, 9}, {1, 2} and {7} of 10: two bytes a list.
TEST(AnswerMessage, BitmapsHaveABitPerRowAndWholeBytesPerList) {
  for (const bool packed : {false, true}) {  // a layer of a stream, and an answer as it is stored
    CompressAnswer answer = TwoLayers();
    answer.format = KeptFormat::kBitmap;
    if (packed) PackKept(answer);
    EXPECT_EQ(answer.sequences[0].triage.kept.empty(), packed);
    v1::CompressResponse response;
    FillCompressResponse(ResultOf(answer), 42, response);
    const v1::KeptSets& sets = response.results(0).kept_sets();
    EXPECT_EQ(sets.lists(), 3u);
    EXPECT_EQ(Int32s(sets.counts_le()), (std::vector<int32_t>{3, 2, 1}));
    EXPECT_FALSE(sets.has_indices_le());
    EXPECT_EQ(sets.bitmaps(), std::string("\x01\x03\x06\x00\x80\x00", 6));
    EXPECT_EQ(response.results(0).layers(1).kept(), 2u);
  }
}

TEST(AnswerMessage, CountsSayHowManyRowsAndNotWhich) {
  for (const bool packed : {false, true}) {
    CompressAnswer answer = TwoLayers();
    answer.format = KeptFormat::kCounts;
    if (packed) PackKept(answer);
    v1::CompressResponse response;
    FillCompressResponse(ResultOf(answer), 42, response);
    const v1::KeptSets& sets = response.results(0).kept_sets();
    EXPECT_EQ(sets.lists(), 3u);
    EXPECT_EQ(Int32s(sets.counts_le()), (std::vector<int32_t>{3, 2, 1}));
    EXPECT_EQ(sets.sets_case(), v1::KeptSets::SETS_NOT_SET);
  }
}

TEST(AnswerMessage, IndicesStayAsTheyAre) {
  CompressAnswer answer = TwoLayers();
  PackKept(answer);
  EXPECT_FALSE(answer.sequences[0].packed.has_value());
  EXPECT_EQ(answer.sequences[0].triage.kept, TwoLayers().sequences[0].triage.kept);
}

// The bound that a move waits for is one, and not a loose one; nor is what a store counts.
TEST(AnswerMessage, AnswersFitTheirBound) {
  for (const uint32_t rows : {1u, 7u, 8u, 9u, 1000u, 100'003u}) {
    for (const auto format : {KeptFormat::kIndices, KeptFormat::kBitmap, KeptFormat::kCounts}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, format " << static_cast<int>(format));
      CompressAnswer answer = TwoLayers();
      answer.format = format;
      SequenceOutcome& outcome = answer.sequences[0];
      outcome.physical_len = outcome.logical_len = rows;
      for (std::vector<int32_t>& list : outcome.triage.kept) {
        list.clear();
        for (uint32_t row = 0; row < rows; row += 3) list.push_back(static_cast<int32_t>(row));
      }
      CompressAnswer head = answer;
      head.sequences[0].triage = {};
      const uint64_t bound =
          ResponseBound(head) + TriageBound(outcome.triage, outcome.physical_len, format);
      PackKept(answer);
      const CallResult result = ResultOf(answer);
      v1::CompressResponse response;
      FillCompressResponse(result, 42, response);
      EXPECT_LE(response.ByteSizeLong(), bound);
      EXPECT_LE(bound, response.ByteSizeLong() + 1024);
      EXPECT_EQ(result.answer->bytes(), bound);
    }
  }
}

TEST(AnswerMessage, QualityThatWasNotMeasuredIsAbsent) {
  v1::CompressResponse response;
  FillCompressResponse(ResultOf(TwoLayers()), 42, response);
  ASSERT_EQ(response.quality_size(), 2);
  EXPECT_EQ(response.quality(0).sequence_id(), 9u);
  EXPECT_FLOAT_EQ(response.quality(0).mass_mean(), 0.75f);
  EXPECT_FLOAT_EQ(response.quality(0).head_error_high(0), 0.5f);
  EXPECT_FALSE(response.quality(0).has_recall_mean());
  EXPECT_EQ(response.quality(1).layer(), 5u);
  EXPECT_FALSE(response.quality(1).has_mass_mean());
  EXPECT_EQ(response.quality(1).head_mass_mean_size(), 0);
}

TEST(AnswerMessage, ObserveHasResultsOfThoseThatWereCutBack) {
  ObserveAnswer answer;
  answer.evicted = TwoLayers();
  answer.policy = answer.evicted.policy;
  answer.policy.window = {.all = true, .decay = 0.5};
  answer.policy.has_window = true;
  answer.steps = {{.sequence_id = 8, .draft_rows = 3, .started = true},
                  {.sequence_id = 9, .evicted = 0}};
  v1::ObserveResponse response;
  FillObserveResponse(ResultOf(answer), 42, response);
  EXPECT_EQ(response.header().server_epoch(), 42u);
  EXPECT_EQ(response.policy().window().decay(), 0.5);
  ASSERT_EQ(response.steps_size(), 2);
  EXPECT_EQ(response.steps(0).sequence_id(), 8u);
  EXPECT_EQ(response.steps(0).draft_rows(), 3u);
  EXPECT_TRUE(response.steps(0).started());
  EXPECT_FALSE(response.steps(0).evicted());
  EXPECT_FALSE(response.steps(0).has_result());
  EXPECT_TRUE(response.steps(1).evicted());
  v1::CompressResponse alone;
  FillCompressResponse(ResultOf(TwoLayers()), 42, alone);
  EXPECT_EQ(response.steps(1).result().SerializeAsString(), alone.results(0).SerializeAsString());
}

TEST(AnswerMessage, Rewind) {
  v1::RewindResponse response;
  FillRewindResponse(ResultOf(RewindAnswer{2, 40}), 42, response);
  EXPECT_EQ(response.header().server_epoch(), 42u);
  EXPECT_EQ(response.draft_rows(), 2u);
  EXPECT_EQ(response.physical_len(), 40u);
}

TEST(AnswerMessage, SelectRecompute) {
  RecomputeAnswer answer;
  answer.rows = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  answer.limits = {2, 3, 4, 5, 6, 7, 8, 9, 10};
  answer.is_must = {true, false, false, false, false, false, false, false, true};
  answer.must = 2;
  answer.hkvd = 7;
  answer.base = 40;
  answer.gap = 0.5;
  answer.divergence_share = 0.875;
  v1::SelectRecomputeResponse response;
  FillSelectRecomputeResponse(ResultOf(answer), 42, response);
  EXPECT_EQ(Int32s(response.rows_le()), answer.rows);
  EXPECT_EQ(Int32s(response.limits_le()), answer.limits);
  EXPECT_EQ(response.is_must_bitmap(), std::string("\x01\x01", 2));
  EXPECT_EQ(response.must(), 2u);
  EXPECT_EQ(response.hkvd(), 7u);
  EXPECT_DOUBLE_EQ(response.divergence_share(), 0.875);
}

TEST(AnswerMessage, ListingShowsRetiringRegions) {
  v1::ListRegionsResponse response;
  FillListing(
      {{.region_id = 5, .tag = 1, .size = 4096, .writable = true, .pins = 2, .retiring = true}},
      {{.cache_id = 6, .tag = 3, .layers = 4, .region_ids = {5}}}, 42, response);
  ASSERT_EQ(response.regions_size(), 1);
  EXPECT_EQ(response.regions(0).access(), v1::ACCESS_READ_WRITE);
  EXPECT_TRUE(response.regions(0).retiring());
  EXPECT_EQ(response.caches(0).region_ids(0), 5u);
}

}  // namespace
}  // namespace kvtriage
