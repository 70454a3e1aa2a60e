// Requests and answers as messages: what is sent, and that a malformed answer is refused.
#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/int32_bytes.h"
#include "client/cpp/policy_proto.h"
#include "client/cpp/recompute_proto.h"
#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

CompressRequest Request() {
  CompressRequest request;
  request.act = InPlace{};
  request.policy = NamedPolicy("snapkv", 0.5);
  Sequence sequence;
  sequence.sequence_id = 7;
  sequence.logical_len = 12;
  sequence.physical_len = 10;
  sequence.table = {4, 2, 9};
  sequence.sharing = Sharing::kAllPrivate;
  request.sequences.push_back(sequence);
  return request;
}

// One sequence, two layers of 2 and 1 KV heads.
v1::CompressResponse Response() {
  v1::CompressResponse response;
  v1::SequenceResult* const result = response.add_results();
  result->set_sequence_id(7);
  result->set_kept(3);
  result->set_blocks_used(1);
  result->set_rewritten_bitmap(std::string("\x01", 1));
  v1::KeptSets* const sets = result->mutable_kept_sets();
  sets->set_granularity(v1::GRANULARITY_PER_HEAD);
  sets->set_lists(3);
  sets->set_counts_le(ToBytes(std::vector<int32_t>{1, 2, 3}));
  sets->set_indices_le(ToBytes(std::vector<int32_t>{5, 0, 6, 1, 2, 9}));
  return response;
}

TEST(CompressProto, SendsWhatTheRequestSays) {
  MemoryIds ids;
  const v1::CompressRequest sent = ToProto(Request(), 3, ids);
  EXPECT_EQ(sent.act().in_place().ledger_slot(), 3u);
  EXPECT_EQ(sent.policy().name(), "snapkv");
  EXPECT_EQ(sent.policy().parts().budget().kept_ratio(), 0.5);
  EXPECT_FALSE(sent.policy().parts().has_scorer());
  EXPECT_EQ(sent.sequences(0).total_dropped(), 2u);
  EXPECT_EQ(*FromBytes(sent.sequences(0).table().inline_le()), (std::vector<int32_t>{4, 2, 9}));
  EXPECT_FALSE(sent.sequences(0).has_row_limits());
  EXPECT_FALSE(sent.sequences(0).has_protect());
  EXPECT_TRUE(sent.inputs().has_keys_only());
  EXPECT_EQ(sent.output().format(), v1::KEPT_FORMAT_INDICES);
}

TEST(CompressProto, SendsWhatTheModelDoesToLogits) {
  CompressRequest request = Request();
  v1::ScoreInputs sent = ToProto(request, 0, MemoryIds()).inputs();
  EXPECT_EQ(sent.logit_softcap(), 0);
  EXPECT_FALSE(sent.has_sink_logits() || sent.has_alibi_slopes());
  request.inputs.logit_softcap = 50;
  request.inputs.sink_logits = DenseTensor({}, 64, DType::kF32, 2, 1, 8, 1);
  request.inputs.alibi_slopes = DenseTensor({}, 128, DType::kBF16, 2, 1, 8, 1);
  sent = ToProto(request, 0, MemoryIds()).inputs();
  EXPECT_EQ(sent.logit_softcap(), 50);
  EXPECT_EQ(sent.sink_logits().offset(), 64u);
  EXPECT_EQ(sent.alibi_slopes().heads(), 8u);
  EXPECT_EQ(sent.alibi_slopes().dtype(), v1::DTYPE_BF16);
}

TEST(CompressProto, SendsTheGroupOfRanks) {
  CompressRequest request = Request();
  EXPECT_FALSE(ToProto(request, 0, MemoryIds()).has_group());
  request.group = Group{{1, 2, 3}, 1, 4, 8, 32};
  const v1::Group sent = ToProto(request, 0, MemoryIds()).group();
  EXPECT_EQ(sent.group_key(), std::string("\1\2\3", 3) + std::string(13, '\0'));
  EXPECT_EQ(sent.rank(), 1u);
  EXPECT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent.first_kv_head(), 8u);
  EXPECT_EQ(sent.total_kv_heads(), 32u);
  RecomputeRequest blend;
  EXPECT_FALSE(ToProto(blend, MemoryIds()).has_group());
  blend.group = request.group;
  EXPECT_EQ(ToProto(blend, MemoryIds()).group().total_kv_heads(), 32u);
}

TEST(CompressProto, APolicyByNameAloneSendsNoParts) {
  CompressRequest request = Request();
  request.policy.parts = {};
  EXPECT_FALSE(ToProto(request, 0, MemoryIds()).policy().has_parts());
}

TEST(CompressProto, EveryPolicyPartSurvivesTheRoundTrip) {
  for (int kind = 0; kind <= static_cast<int>(Scorer::Kind::kExpectedAttention); ++kind) {
    Policy policy;
    policy.parts.scorer = Scorer{static_cast<Scorer::Kind>(kind), 0};
    policy.parts.window = Window{kind % 2 == 0, kind % 2 == 0 ? 0u : 5u};
    policy.parts.reduce = Reduce::kPre;
    policy.parts.pool = Pool{Pool::Kind::kMax, 7};
    policy.parts.protect = Protect{1, 2, 0.25};
    policy.parts.budget.emplace().kept_tokens = 9;
    policy.parts.budget->adaptive_alpha = 0.3;
    policy.parts.budget->pyramid_beta = 20;
    policy.parts.granularity = Granularity::kPerLayer;
    const PolicyParts back = FromProto(ToProto(policy)).parts;
    EXPECT_EQ(back.scorer->kind, policy.parts.scorer->kind);
    EXPECT_EQ(back.window->all, policy.parts.window->all);
    EXPECT_EQ(back.window->last, policy.parts.window->last);
    EXPECT_EQ(*back.reduce, Reduce::kPre);
    EXPECT_EQ(back.pool->kind, Pool::Kind::kMax);
    EXPECT_EQ(back.pool->kernel, 7u);
    EXPECT_EQ(back.protect->recent_share, 0.25);
    EXPECT_EQ(*back.budget->kept_tokens, 9u);
    EXPECT_FALSE(back.budget->kept_ratio.has_value());
    EXPECT_EQ(*back.budget->adaptive_alpha, 0.3);
    EXPECT_EQ(back.budget->pyramid_beta, 20u);
    EXPECT_EQ(*back.granularity, Granularity::kPerLayer);
  }
}

TEST(CompressProto, ScorerNumbersAndExplicitCountsSurviveTheRoundTrip) {
  Policy policy;
  policy.parts.scorer = Scorer{.kind = Scorer::Kind::kLagKv, .lag = 128};
  policy.parts.budget.emplace().explicit_layers = {3, 70000};
  PolicyParts back = FromProto(ToProto(policy)).parts;
  EXPECT_EQ(back.scorer->lag, 128u);
  EXPECT_EQ(back.budget->explicit_layers, (std::vector<uint32_t>{3, 70000}));
  EXPECT_FALSE(back.budget->kept_tokens.has_value() || back.budget->uniform_layers);
  policy.parts.scorer =
      Scorer{.kind = Scorer::Kind::kCritical, .first_stage = 0.5, .epsilon = 1e-4};
  policy.parts.budget = Budget{};
  policy.parts.budget->explicit_heads = {1, 2, 3};
  back = FromProto(ToProto(policy)).parts;
  EXPECT_EQ(back.scorer->first_stage, 0.5);
  EXPECT_EQ(back.scorer->epsilon, 1e-4);
  EXPECT_EQ(back.budget->explicit_heads, (std::vector<uint32_t>{1, 2, 3}));
  policy.parts.scorer =
      Scorer{.kind = Scorer::Kind::kExpectedAttention, .epsilon = 1e-2, .future = 512};
  back = FromProto(ToProto(policy)).parts;
  EXPECT_EQ(back.scorer->epsilon, 1e-2);
  EXPECT_EQ(back.scorer->future, 512u);
}

TEST(CompressProto, TheOutputProjectionGoesBesideAnySource) {
  CompressRequest request = Request();
  EXPECT_FALSE(ToProto(request, 0, MemoryIds()).inputs().has_output_projection());
  request.inputs.output_projection.emplace().rows = 576;
  EXPECT_EQ(ToProto(request, 0, MemoryIds()).inputs().output_projection().rows(), 576u);
  EXPECT_FALSE(ToProto(request, 0, MemoryIds()).inputs().has_query_mean());
  request.inputs.query_mean.emplace().elems = 7;
  request.inputs.query_covariance.emplace().rows = 8;
  EXPECT_EQ(ToProto(request, 0, MemoryIds()).inputs().query_mean().elems(), 7u);
  EXPECT_EQ(ToProto(request, 0, MemoryIds()).inputs().query_covariance().rows(), 8u);
}

TEST(CompressProto, KeptListsAndTheCutTableComeBack) {
  const auto result = FromProto(Response(), Request(), {2, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  const SequenceResult& sequence = result->sequences.at(0);
  EXPECT_EQ(sequence.kept_sets.At(0, 0), (std::vector<int32_t>{5}));
  EXPECT_EQ(sequence.kept_sets.At(0, 1), (std::vector<int32_t>{0, 6}));
  EXPECT_EQ(sequence.kept_sets.At(1, 0), (std::vector<int32_t>{1, 2, 9}));
  EXPECT_EQ(sequence.table, (std::vector<int32_t>{4}));
  EXPECT_EQ(sequence.rewritten, (std::vector<uint32_t>{0}));
}

TEST(CompressProto, HeadsAndLayersThatShareAListFindIt) {
  v1::CompressResponse response = Response();
  v1::KeptSets* const sets = response.mutable_results(0)->mutable_kept_sets();
  sets->set_granularity(v1::GRANULARITY_PER_LAYER);
  sets->set_lists(2);
  sets->set_counts_le(ToBytes(std::vector<int32_t>{4, 2}));
  const auto per_layer = FromProto(response, Request(), {2, 1});
  ASSERT_TRUE(per_layer.ok());
  EXPECT_EQ(per_layer->sequences[0].kept_sets.At(0, 1).size(), 4u);
  EXPECT_EQ(per_layer->sequences[0].kept_sets.At(1, 0).size(), 2u);
  sets->set_granularity(v1::GRANULARITY_PER_SEQUENCE);
  sets->set_lists(1);
  sets->set_counts_le(ToBytes(std::vector<int32_t>{6}));
  const auto shared = FromProto(response, Request(), {2, 1});
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->sequences[0].kept_sets.At(1, 0).size(), 6u);
}

TEST(CompressProto, AnAnswerThatDoesNotFitTheRequestIsRefused) {
  struct Change {
    const char* what;
    void (*apply)(v1::CompressResponse&);
  };
  const Change changes[] = {
      {"no result", [](v1::CompressResponse& r) { r.clear_results(); }},
      {"another sequence",
       [](v1::CompressResponse& r) { r.mutable_results(0)->set_sequence_id(8); }},
      {"blocks beyond the table",
       [](v1::CompressResponse& r) { r.mutable_results(0)->set_blocks_used(4); }},
      {"ragged counts",
       [](v1::CompressResponse& r) {
         r.mutable_results(0)->mutable_kept_sets()->mutable_counts_le()->pop_back();
       }},
      {"negative count",
       [](v1::CompressResponse& r) {
         r.mutable_results(0)->mutable_kept_sets()->set_counts_le(
             ToBytes(std::vector<int32_t>{-1, 4, 3}));
       }},
      {"more counts than indices",
       [](v1::CompressResponse& r) {
         r.mutable_results(0)->mutable_kept_sets()->set_counts_le(
             ToBytes(std::vector<int32_t>{1, 2, 2147483647}));
       }},
      {"fewer counts than indices",
       [](v1::CompressResponse& r) {
         r.mutable_results(0)->mutable_kept_sets()->set_counts_le(
             ToBytes(std::vector<int32_t>{1, 2, 2}));
       }},
  };
  for (const Change& change : changes) {
    v1::CompressResponse response = Response();
    change.apply(response);
    EXPECT_EQ(FromProto(response, Request(), {2, 1}).status().code(), absl::StatusCode::kInternal)
        << change.what;
  }
}

// The rows of Response() as bits of 10: two bytes a list.
v1::CompressResponse BitmapResponse() {
  v1::CompressResponse response = Response();
  response.mutable_results(0)->mutable_kept_sets()->set_bitmaps(
      std::string("\x20\x00\x41\x00\x06\x02", 6));
  return response;
}

TEST(CompressProto, BitmapsBecomeTheSameLists) {
  CompressRequest request = Request();
  request.kept_format = KeptFormat::kBitmap;
  EXPECT_EQ(ToProto(request, 0, MemoryIds()).output().format(), v1::KEPT_FORMAT_BITMAP);
  const auto bits = FromProto(BitmapResponse(), request, {2, 1});
  ASSERT_TRUE(bits.ok()) << bits.status();
  const auto indices = FromProto(Response(), Request(), {2, 1});
  ASSERT_TRUE(indices.ok()) << indices.status();
  EXPECT_EQ(bits->sequences[0].kept_sets.lists, indices->sequences[0].kept_sets.lists);
  EXPECT_EQ(bits->sequences[0].kept_sets.counts, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(indices->sequences[0].kept_sets.counts, (std::vector<uint32_t>{1, 2, 3}));
}

TEST(CompressProto, CountsComeWithoutLists) {
  CompressRequest request = Request();
  request.kept_format = KeptFormat::kCounts;
  EXPECT_EQ(ToProto(request, 0, MemoryIds()).output().format(), v1::KEPT_FORMAT_COUNTS);
  v1::CompressResponse response = Response();
  response.mutable_results(0)->mutable_kept_sets()->clear_sets();
  const auto result = FromProto(response, request, {2, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  const KeptSets& sets = result->sequences[0].kept_sets;
  EXPECT_TRUE(sets.lists.empty());
  EXPECT_EQ(sets.CountAt(0, 1), 2u);
  EXPECT_EQ(sets.CountAt(1, 0), 3u);
  EXPECT_THROW(sets.At(0, 0), std::out_of_range);
}

TEST(CompressProto, BitsThatDoNotFitTheRequestAreRefused) {
  struct Change {
    const char* what;
    KeptFormat format;
    void (*apply)(v1::KeptSets&);
  };
  const Change changes[] = {
      {"indices for bits", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { s.set_indices_le(Response().results(0).kept_sets().indices_le()); }},
      {"bits for indices", KeptFormat::kIndices, [](v1::KeptSets&) {}},
      {"bits for counts", KeptFormat::kCounts, [](v1::KeptSets&) {}},
      {"nothing for bits", KeptFormat::kBitmap, [](v1::KeptSets& s) { s.clear_sets(); }},
      {"a byte short", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { s.mutable_bitmaps()->pop_back(); }},
      {"a byte long", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { s.mutable_bitmaps()->push_back('\0'); }},
      {"a bit more than counted", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { (*s.mutable_bitmaps())[0] = '\x21'; }},
      {"a bit in another list", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { s.set_bitmaps(std::string("\x21\x00\x01\x00\x06\x02", 6)); }},
      {"a bit behind the last row", KeptFormat::kBitmap,
       [](v1::KeptSets& s) { s.set_bitmaps(std::string("\x20\x00\x41\x00\x06\x04", 6)); }},
      {"a negative count", KeptFormat::kCounts,
       [](v1::KeptSets& s) {
         s.clear_sets();
         s.set_counts_le(ToBytes(std::vector<int32_t>{1, -2, 3}));
       }},
  };
  for (const Change& change : changes) {
    v1::CompressResponse response = BitmapResponse();
    change.apply(*response.mutable_results(0)->mutable_kept_sets());
    CompressRequest request = Request();
    request.kept_format = change.format;
    EXPECT_EQ(FromProto(response, request, {2, 1}).status().code(), absl::StatusCode::kInternal)
        << change.what;
  }
}

}  // namespace
}  // namespace kvtriage::client
