#include "service/validate/compress_proto.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using v1::ScoreInputs;

CompressSpec Parsed(const v1::CompressRequest& request, const PolicyDefaults& defaults = {}) {
  auto spec = ParseCompress(request, Limits(), defaults);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : CompressSpec{};
}

TEST(ParseCompress, GivesThePlainValues) {
  v1::CompressRequest request = ValidCompress();
  v1::SequenceSpec& sequence = *request.mutable_sequences(0);
  sequence.set_kv_revision(3);
  sequence.set_first_slot(2);
  sequence.set_sharing(v1::SHARING_BITMAP);
  sequence.set_shared_bitmap("\x05");
  sequence.mutable_row_limits()->set_inline_le(Int32Bytes({0, 7, 19, 20}));
  sequence.mutable_protect()->set_granularity(v1::GRANULARITY_PER_LAYER);
  sequence.mutable_protect()->set_counts_le(Int32Bytes({2, 0}));
  sequence.mutable_protect()->set_indices_le(Int32Bytes({0, 19}));
  request.mutable_act()->mutable_in_place()->set_ledger_slot(3);
  const CompressSpec spec = Parsed(request);

  EXPECT_EQ(spec.header.key[15], 'f');
  EXPECT_FALSE(spec.header.resolve);
  EXPECT_EQ(spec.cache_id, request.cache_id());
  EXPECT_THAT(spec.layers, ElementsAre(0, 1));
  EXPECT_EQ(spec.policy.name, "snapkv");
  EXPECT_EQ(spec.act.kind, ActKind::kInPlace);
  EXPECT_EQ(spec.act.ledger_slot, 3u);
  EXPECT_TRUE(spec.measure.retained_mass);
  EXPECT_FALSE(spec.measure.output_error);
  ASSERT_EQ(spec.sequences.size(), 2u);
  const SequenceSpec& s = spec.sequences[0];
  EXPECT_EQ(s.sequence_id, 11u);
  EXPECT_EQ(s.generation, 1u);
  EXPECT_EQ(s.kv_revision, 3u);
  EXPECT_EQ(s.logical_len, 25u);
  EXPECT_EQ(s.physical_len, 20u);
  EXPECT_EQ(s.total_dropped, 5u);
  EXPECT_EQ(s.first_slot, 2u);
  EXPECT_THAT(s.table, ElementsAre(5, 2, -1, -1));
  EXPECT_TRUE(s.IsShared(0));
  EXPECT_FALSE(s.IsShared(1));
  EXPECT_TRUE(s.IsShared(2));
  EXPECT_EQ(s.rows_count, 4u);
  EXPECT_THAT(s.row_limits, ElementsAre(0, 7, 19, 20));
  EXPECT_EQ(s.protect.granularity, Granularity::kPerLayer);
  EXPECT_THAT(s.protect.lists, ElementsAre(ElementsAre(0, 19), IsEmpty()));
  EXPECT_EQ(spec.sequences[1].rows_begin, 4u);
  EXPECT_THAT(spec.sequences[1].protect.lists, IsEmpty());
}

TEST(ParseCompress, EverySourceComesThrough) {
  const CompressSpec query = Parsed(ValidCompress());
  EXPECT_EQ(query.inputs.source, AttentionSource::kQuery);
  ASSERT_TRUE(query.inputs.q.has_value());
  EXPECT_EQ(query.inputs.q->rows, 7u);
  EXPECT_EQ(query.inputs.q->head_stride, 256u);
  EXPECT_EQ(query.inputs.softmax_scale, 0.125);

  v1::CompressRequest with_lse = ValidCompressFrom(ScoreInputs::kQueryOutput);
  with_lse.mutable_inputs()->mutable_query_output()->set_lse_base(v1::LSE_BASE_2);
  const CompressSpec output = Parsed(with_lse);
  EXPECT_EQ(output.inputs.source, AttentionSource::kQueryOutput);
  EXPECT_TRUE(output.inputs.q && output.inputs.o && output.inputs.lse);
  EXPECT_EQ(output.inputs.lse_base, LseBase::k2);

  const CompressSpec ready = Parsed(ValidCompressFrom(ScoreInputs::kAttention));
  EXPECT_EQ(ready.inputs.source, AttentionSource::kReady);
  EXPECT_TRUE(ready.inputs.a && ready.inputs.z && ready.inputs.o);

  const CompressSpec sums = Parsed(ValidCompressFrom(ScoreInputs::kColumnSums));
  EXPECT_EQ(sums.inputs.source, AttentionSource::kColumnSums);
  EXPECT_EQ(sums.inputs.sums_axis, HeadAxis::kQuery);

  EXPECT_EQ(Parsed(ValidCompressFrom(ScoreInputs::kKeysOnly)).inputs.source,
            AttentionSource::kNone);
}

TEST(ParseCompress, ReadyAttentionNeedsOnlyWhatTheScorerReads) {
  v1::CompressRequest request = ValidCompressFrom(ScoreInputs::kAttention);
  request.mutable_inputs()->mutable_attention()->clear_z();
  request.mutable_inputs()->mutable_attention()->clear_o();
  request.mutable_measure()->set_output_error(true);
  EXPECT_FALSE(Parsed(request).inputs.z.has_value());
  request.mutable_policy()->set_name("snapkv+obc-value");
  EXPECT_FALSE(Parsed(request).inputs.o.has_value());
}

TEST(ParseCompress, SumsOverAllHeadsGoWithSharedSets) {
  for (const auto granularity : {v1::GRANULARITY_PER_LAYER, v1::GRANULARITY_PER_SEQUENCE}) {
    v1::CompressRequest request = ValidCompressFrom(ScoreInputs::kColumnSums);
    request.mutable_policy()->mutable_parts()->set_granularity(granularity);
    *request.mutable_inputs()->mutable_column_sums()->mutable_sums() = PackedTensor(2, 2, 1, 20);
    request.mutable_inputs()->mutable_column_sums()->set_heads(v1::HEAD_AXIS_SUMMED);
    EXPECT_EQ(Parsed(request).inputs.sums_axis, HeadAxis::kSummed);
  }
}

TEST(ParseCompress, WindowAllTakesSumsOrAllRows) {
  v1::CompressRequest sums = ValidCompressFrom(ScoreInputs::kColumnSums);
  sums.mutable_policy()->set_name("h2o");
  EXPECT_TRUE(Parsed(sums).policy.window.all);

  v1::CompressRequest all = ValidCompress();
  all.mutable_policy()->set_name("h2o");
  *all.mutable_inputs()->mutable_query()->mutable_q() = PackedTensor(2, 23, 8, 64);
  all.mutable_sequences(0)->set_rows_count(20);
  all.mutable_sequences(1)->set_rows_begin(20);
  EXPECT_TRUE(Parsed(all).policy.window.all);

  // A caller with fewer rows says so.
  v1::CompressRequest fewer = ValidCompress();
  fewer.mutable_policy()->set_name("h2o");
  fewer.mutable_policy()->mutable_parts()->mutable_window()->set_last(4);
  EXPECT_EQ(Parsed(fewer).policy.window.last, 4u);
}

TEST(ParseCompress, QueriesMayComeAlongForMeasuringOnly) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_policy()->set_name("streaming");
  request.mutable_sequences(1)->set_rows_count(0);
  EXPECT_EQ(Parsed(request).inputs.source, AttentionSource::kQuery);
}

TEST(ParseCompress, ASequenceWithoutRowsNeedsNothing) {
  v1::CompressRequest request = ValidCompress();
  v1::SequenceSpec& sequence = *request.mutable_sequences(0);
  sequence.set_logical_len(5);
  sequence.set_physical_len(0);
  sequence.clear_table();
  sequence.set_rows_count(0);
  EXPECT_THAT(Parsed(request).sequences[0].table, IsEmpty());
}

TEST(ParseCompress, LimitsAllowQueriesThatAreNotInTheCache) {
  v1::CompressRequest request = ValidCompress();
  v1::SequenceSpec& sequence = *request.mutable_sequences(1);  // 3 rows
  sequence.set_rows_begin(0);
  sequence.set_rows_count(4);
  sequence.mutable_row_limits()->set_inline_le(Int32Bytes({3, 3, 3, 3}));
  EXPECT_EQ(Parsed(request).sequences[1].rows_count, 4u);
}

// Kind: the padding slot minus one. https://github.com/vllm-project/vllm/pull/43869
// https://github.com/sgl-project/sglang/pull/38997
TEST(ParseCompress, EntriesOfATableAreNotJudgedHere) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_sequences(0)->mutable_table()->set_inline_le(
      Int32Bytes({5, -1, 0x7FFFFFFF, static_cast<int32_t>(0x80000000)}));
  EXPECT_EQ(Parsed(request).sequences[0].table[3], INT32_MIN);
}

TEST(ParseCompress, CopyHasADestination) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_act()->mutable_copy_to()->set_cache_id(77);
  for (v1::SequenceSpec& sequence : *request.mutable_sequences()) {
    sequence.mutable_destination()->set_inline_le(Int32Bytes({6}));
  }
  const CompressSpec spec = Parsed(request);
  EXPECT_EQ(spec.act.kind, ActKind::kCopy);
  EXPECT_EQ(spec.act.destination_cache_id, 77u);
  EXPECT_THAT(spec.sequences[1].destination, ElementsAre(6));
}

TEST(ParseCompress, SelectingNeedsNoSharing) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_act()->mutable_select_only();
  for (v1::SequenceSpec& sequence : *request.mutable_sequences()) sequence.clear_sharing();
  const CompressSpec spec = Parsed(request);
  EXPECT_EQ(spec.act.kind, ActKind::kSelectOnly);
  EXPECT_TRUE(spec.sequences[0].IsShared(0));
}

TEST(ParseCompress, KeptSetsComeInTheFormatAskedFor) {
  v1::CompressRequest request = ValidCompress();
  EXPECT_EQ(Parsed(request).format, KeptFormat::kIndices);
  request.mutable_output()->set_format(v1::KEPT_FORMAT_BITMAP);
  EXPECT_EQ(Parsed(request).format, KeptFormat::kBitmap);
  request.mutable_output()->set_format(v1::KEPT_FORMAT_COUNTS);
  EXPECT_EQ(Parsed(request).format, KeptFormat::kCounts);
  request.mutable_act()->mutable_select_only();
  EXPECT_EQ(Parsed(request).format, KeptFormat::kCounts);
}

// Kind: one length for all layers. https://github.com/huggingface/transformers/issues/35168
TEST(ParseCompress, UniformBudgetsGoWithEveryLengthRule) {
  for (const auto rule : {v1::LENGTH_RULE_ANY, v1::LENGTH_RULE_PER_LAYER, v1::LENGTH_RULE_ONE}) {
    v1::CompressRequest request = ValidCompress();
    request.mutable_output()->set_lengths(rule);
    EXPECT_EQ(static_cast<int>(Parsed(request).lengths), static_cast<int>(rule) - 1);
  }
  v1::CompressRequest adaptive = ValidCompress();
  adaptive.mutable_policy()->set_name("adakv");
  EXPECT_TRUE(Parsed(adaptive).policy.budget.adaptive_alpha.has_value());
}

// An agreed set is applied as explicit rows with a budget of its size.
TEST(ParseCompress, ExplicitRowsMayFillTheBudget) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_tokens(2);
  v1::IndexLists& lists = *request.mutable_sequences(0)->mutable_protect();
  lists.set_granularity(v1::GRANULARITY_PER_HEAD);
  lists.set_counts_le(Int32Bytes({2, 2, 2, 2}));
  lists.set_indices_le(Int32Bytes({0, 1, 2, 3, 0, 19, 4, 5}));
  EXPECT_EQ(Parsed(request).sequences[0].protect.lists.size(), 4u);
}

TEST(ParseCompress, LimitsHoldAtTheirEdge) {
  v1::CompressRequest request = ValidCompressFrom(ScoreInputs::kKeysOnly);
  for (uint32_t id = 1000; request.sequences_size() < 256; ++id) {
    v1::SequenceSpec& more = *request.add_sequences();
    more = request.sequences(0);
    more.set_sequence_id(id);
  }
  std::vector<int32_t> layers(256);
  for (int32_t i = 0; i < 256; ++i) layers[static_cast<size_t>(i)] = i;
  request.set_layers_le(Int32Bytes(layers));
  request.mutable_sequences(0)->set_physical_len(1u << 24);
  request.mutable_sequences(0)->set_logical_len(1u << 24);
  request.mutable_sequences(0)->set_total_dropped(0);
  const CompressSpec spec = Parsed(request);
  EXPECT_EQ(spec.sequences.size(), 256u);
  EXPECT_EQ(spec.layers.back(), 255u);
}

TEST(ParseCompress, ResolveIgnoresTheBody) {
  v1::CompressRequest request;
  request.mutable_header()->set_idempotency_key("0123456789abcdef");
  request.mutable_header()->set_resolve(true);
  request.set_layers_le("x");
  EXPECT_TRUE(Parsed(request).header.resolve);
}

TEST(ParseCompress, RecencyNeedsNoInputsAtAll) {
  v1::CompressRequest request = ValidCompressFrom(ScoreInputs::kKeysOnly);
  request.clear_inputs();
  EXPECT_EQ(Parsed(request).inputs.source, AttentionSource::kNone);
  request.mutable_measure()->set_output_error(true);  // nothing to measure on; not an error
  EXPECT_TRUE(Parsed(request).measure.output_error);
}

// Sums over all rows may stand in for queries that did not come; a window of some rows has none.
TEST(ParseCompress, WithoutQueriesRunningScoresMayStandIn) {
  v1::CompressRequest request = ValidCompressFrom(ScoreInputs::kKeysOnly);
  EXPECT_FALSE(Parsed(request).from_running_scores);
  for (const char* name : {"h2o", "vatp", "h2o+drop"}) {
    request.mutable_policy()->clear_parts();
    request.mutable_policy()->set_name(name);
    EXPECT_TRUE(Parsed(request).from_running_scores) << name;
  }
  v1::CompressRequest seeds = request;
  seeds.set_keep_state(true);
  EXPECT_EQ(GetErrorInfo(ParseCompress(seeds, Limits(), PolicyDefaults()).status())->field,
            "keep_state");
  request.mutable_policy()->set_name("snapkv");
  const auto refused = GetErrorInfo(ParseCompress(request, Limits(), PolicyDefaults()).status());
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, ErrorReason::kPolicyInvalid);
  EXPECT_EQ(refused->field, "inputs.keys_only");
}

}  // namespace
}  // namespace kvtriage
