// What each malformed Compress gets: one row per case, one change to a valid request each.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "service/validate/compress_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Request = v1::CompressRequest;
using Reason = ErrorReason;
using v1::ScoreInputs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

struct Row {
  const char* name;
  ScoreInputs::SourceCase source;
  std::function<void(Request&)> change;
  absl::StatusCode code;
  Reason reason;
  const char* field;
};

v1::SequenceSpec& Seq(Request& r, int i = 0) { return *r.mutable_sequences(i); }
v1::PolicyParts& Parts(Request& r) { return *r.mutable_policy()->mutable_parts(); }

void Protect(Request& r, v1::Granularity granularity, const std::vector<int32_t>& counts,
             const std::vector<int32_t>& rows) {
  v1::IndexLists& lists = *Seq(r).mutable_protect();
  lists.set_granularity(granularity);
  lists.set_counts_le(Int32Bytes(counts));
  lists.set_indices_le(Int32Bytes(rows));
}

constexpr auto kQ = ScoreInputs::kQuery;
constexpr auto kQo = ScoreInputs::kQueryOutput;
constexpr auto kReady = ScoreInputs::kAttention;
constexpr auto kSums = ScoreInputs::kColumnSums;
constexpr auto kKeys = ScoreInputs::kKeysOnly;

const std::vector<Row>& HeaderAndShapeRows() {
  static const auto* const rows = new std::vector<Row>{
      {"no header", kQ, [](Request& r) { r.clear_header(); }, kInvalid, Reason::kFieldMissing,
       "header"},
      {"no key", kQ, [](Request& r) { r.mutable_header()->clear_idempotency_key(); }, kInvalid,
       Reason::kFieldMissing, "header.idempotency_key"},
      {"key of 15 bytes", kQ,
       [](Request& r) { r.mutable_header()->set_idempotency_key(std::string(15, 'k')); }, kInvalid,
       Reason::kFieldInvalid, "header.idempotency_key"},
      {"key of 17 bytes", kQ,
       [](Request& r) { r.mutable_header()->set_idempotency_key(std::string(17, 'k')); }, kInvalid,
       Reason::kFieldInvalid, "header.idempotency_key"},
      {"no cache", kQ, [](Request& r) { r.clear_cache_id(); }, kInvalid, Reason::kFieldMissing,
       "cache_id"},
      {"layers not int32", kQ, [](Request& r) { r.set_layers_le("abcde"); }, kInvalid,
       Reason::kFieldInvalid, "layers_le"},
      {"layers not ascending", kQ,
       [](Request& r) {
         r.set_layers_le(Int32Bytes({1, 0}));
       },
       kInvalid, Reason::kIndexInvalid, "layers_le"},
      {"layer twice", kQ,
       [](Request& r) {
         r.set_layers_le(Int32Bytes({1, 1}));
       },
       kInvalid, Reason::kIndexInvalid, "layers_le"},
      {"negative layer", kQ, [](Request& r) { r.set_layers_le(Int32Bytes({-1})); }, kOutOfRange,
       Reason::kIndexOutOfRange, "layers_le"},
      {"layer 256", kQ, [](Request& r) { r.set_layers_le(Int32Bytes({256})); }, kOutOfRange,
       Reason::kIndexOutOfRange, "layers_le"},
      {"257 layers", kQ, [](Request& r) { r.set_layers_le(std::string(257 * 4, '\0')); }, kInvalid,
       Reason::kTooMany, "layers_le"},
      {"no act", kQ, [](Request& r) { r.clear_act(); }, kInvalid, Reason::kFieldMissing, "act"},
      {"ledger slot", kQ,
       [](Request& r) { r.mutable_act()->mutable_in_place()->set_ledger_slot(4); }, kInvalid,
       Reason::kFieldInvalid, "act.in_place.ledger_slot"},
      {"copy to nowhere", kQ, [](Request& r) { r.mutable_act()->mutable_copy_to(); }, kInvalid,
       Reason::kFieldMissing, "act.copy_to.cache_id"},
      {"no output", kQ, [](Request& r) { r.clear_output(); }, kInvalid, Reason::kFieldMissing,
       "output"},
      {"no format", kQ, [](Request& r) { r.mutable_output()->clear_format(); }, kInvalid,
       Reason::kEnumUnspecified, "output.format"},
      {"kept sets in a region", kQ,
       [](Request& r) { r.mutable_output()->set_format(static_cast<v1::KeptFormat>(3)); },
       kUnimplemented, Reason::kUnsupported, "output.format"},
      {"unknown format", kQ,
       [](Request& r) { r.mutable_output()->set_format(static_cast<v1::KeptFormat>(9)); }, kInvalid,
       Reason::kEnumUnspecified, "output.format"},
      {"no length rule", kQ, [](Request& r) { r.mutable_output()->clear_lengths(); }, kInvalid,
       Reason::kEnumUnspecified, "output.lengths"},
      {"no policy", kQ, [](Request& r) { r.clear_policy(); }, kInvalid, Reason::kFieldMissing,
       "policy"},
      {"unknown policy", kQ, [](Request& r) { r.mutable_policy()->set_name("snapkw"); }, kInvalid,
       Reason::kPolicyUnknown, "policy.name"},
      {"ratio above 1", kQ, [](Request& r) { Parts(r).mutable_budget()->set_kept_ratio(1.5); },
       kInvalid, Reason::kFieldInvalid, "policy.parts.budget.kept_ratio"},
      {"adaptive, lengths per layer", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("adakv");
         r.mutable_output()->set_lengths(v1::LENGTH_RULE_PER_LAYER);
       },
       kInvalid, Reason::kLengthsUnequal, "output.lengths"},
      {"adaptive, one length", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("adakv");
         r.mutable_output()->set_lengths(v1::LENGTH_RULE_ONE);
       },
       kInvalid, Reason::kLengthsUnequal, "output.lengths"},
      // Kind: one length for all layers. https://github.com/huggingface/transformers/issues/35168
      {"pyramid, one length", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("pyramidkv");
         r.mutable_output()->set_lengths(v1::LENGTH_RULE_ONE);
       },
       kInvalid, Reason::kLengthsUnequal, "output.lengths"},
      {"counts per layer, one length", kQ,
       [](Request& r) {
         v1::Budget& budget = *Parts(r).mutable_budget();
         budget.clear_amount();
         budget.mutable_explicit_layers()->set_counts_le(Int32Bytes({3, 4}));
         r.mutable_output()->set_lengths(v1::LENGTH_RULE_ONE);
       },
       kInvalid, Reason::kLengthsUnequal, "output.lengths"},
      {"pyramid, unequal explicit rows", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("pyramidkv");
         Protect(r, v1::GRANULARITY_PER_LAYER, {1, 2}, {0, 3, 4});
       },
       kInvalid, Reason::kPolicyInvalid, "sequences[0].protect"},
      {"no output projection", kQ, [](Request& r) { r.mutable_policy()->set_name("criticalkv"); },
       kInvalid, Reason::kFieldMissing, "inputs.output_projection"},
      {"output projection of no type", kQ,
       [](Request& r) {
         v1::Tensor& tensor = *r.mutable_inputs()->mutable_output_projection();
         tensor = PackedTensor(2, 12, 8, 64);
         tensor.clear_dtype();
       },
       kInvalid, Reason::kEnumUnspecified, "inputs.output_projection.dtype"},
      {"hidden size above the limit", kQ,
       [](Request& r) {
         *r.mutable_inputs()->mutable_output_projection() = PackedTensor(2, 65537, 8, 64);
       },
       kInvalid, Reason::kTooMany, "inputs.output_projection.rows"},
      {"no query mean", kKeys,
       [](Request& r) {
         r.mutable_policy()->set_name("expected-attention");
         r.mutable_inputs()->set_softmax_scale(1);
       },
       kInvalid, Reason::kFieldMissing, "inputs.query_mean"},
      {"queries after RoPE for expected attention", kQ,
       [](Request& r) { r.mutable_policy()->set_name("expected-attention"); }, kInvalid,
       Reason::kFieldMissing, "inputs.query_mean"},
      {"queries of some rows for expected attention", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("expected-attention");
         r.mutable_inputs()->mutable_query()->set_stage(v1::QUERY_STAGE_BEFORE_ROPE);
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].rows_count"},
      {"a query mean without its covariance", kQ,
       [](Request& r) { *r.mutable_inputs()->mutable_query_mean() = PackedTensor(2, 1, 8, 64); },
       kInvalid, Reason::kFieldMissing, "inputs.query_covariance"},
      {"expected attention without a scale", kKeys,
       [](Request& r) {
         r.mutable_policy()->set_name("expected-attention");
         r.mutable_inputs()->clear_softmax_scale();
         *r.mutable_inputs()->mutable_query_mean() = PackedTensor(2, 1, 8, 64);
         *r.mutable_inputs()->mutable_query_covariance() = PackedTensor(2, 64, 8, 64);
       },
       kInvalid, Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"column sums for CriticalKV", kSums,
       [](Request& r) { r.mutable_policy()->set_name("criticalkv"); }, kInvalid,
       Reason::kPolicyInvalid, "inputs.column_sums"},
  };
  return *rows;
}

const std::vector<Row>& SequenceRows() {
  static const auto* const rows = new std::vector<Row>{
      {"no sequences", kQ, [](Request& r) { r.clear_sequences(); }, kInvalid, Reason::kFieldMissing,
       "sequences"},
      {"257 sequences", kQ,
       [](Request& r) {
         while (r.sequences_size() < 257) r.add_sequences();
       },
       kInvalid, Reason::kTooMany, "sequences"},
      {"id 0", kQ, [](Request& r) { Seq(r, 1).set_sequence_id(0); }, kInvalid,
       Reason::kFieldInvalid, "sequences[1].sequence_id"},
      {"id twice", kQ, [](Request& r) { Seq(r, 1).set_sequence_id(11); }, kInvalid,
       Reason::kFieldInvalid, "sequences[1].sequence_id"},
      {"N not logical - dropped", kQ, [](Request& r) { Seq(r).set_total_dropped(4); },
       kPrecondition, Reason::kSequenceStale, "sequences[0].physical_len"},
      {"more dropped than seen", kQ, [](Request& r) { Seq(r).set_total_dropped(~uint64_t{0} - 3); },
       kPrecondition, Reason::kSequenceStale, "sequences[0].physical_len"},
      // Kind: a table shorter than the sequence. https://github.com/vllm-project/vllm/issues/53982
      {"2^31 - 1 rows", kQ, [](Request& r) { Seq(r).set_physical_len(0x7FFFFFFF); }, kInvalid,
       Reason::kTooMany, "sequences[0].physical_len"},
      {"rows above 32 bits", kQ, [](Request& r) { Seq(r).set_physical_len(uint64_t{1} << 32); },
       kInvalid, Reason::kTooMany, "sequences[0].physical_len"},
      {"no table", kQ, [](Request& r) { Seq(r).clear_table(); }, kInvalid, Reason::kFieldMissing,
       "sequences[0].table"},
      {"table not int32", kQ, [](Request& r) { Seq(r).mutable_table()->set_inline_le("abc"); },
       kInvalid, Reason::kFieldInvalid, "sequences[0].table"},
      // Kind: shared blocks rewritten. https://github.com/NVIDIA/TensorRT-LLM/pull/15106
      // https://github.com/sgl-project/sglang/pull/20450
      {"writes, sharing not said", kQ, [](Request& r) { Seq(r).clear_sharing(); }, kInvalid,
       Reason::kEnumUnspecified, "sequences[0].sharing"},
      {"copies, sharing not said", kQ,
       [](Request& r) {
         r.mutable_act()->mutable_copy_to()->set_cache_id(1);
         Seq(r).clear_sharing();
       },
       kInvalid, Reason::kEnumUnspecified, "sequences[0].sharing"},
      {"unknown sharing, even to select", kQ,
       [](Request& r) {
         r.mutable_act()->mutable_select_only();
         Seq(r).set_sharing(static_cast<v1::Sharing>(5));
       },
       kInvalid, Reason::kEnumUnspecified, "sequences[0].sharing"},
      {"shared blocks, all private", kQ, [](Request& r) { Seq(r).set_shared_blocks(1); }, kInvalid,
       Reason::kFieldInvalid, "sequences[0].shared_blocks"},
      {"more shared blocks than entries", kQ,
       [](Request& r) {
         Seq(r).set_sharing(v1::SHARING_PREFIX);
         Seq(r).set_shared_blocks(5);
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].shared_blocks"},
      {"no bitmap", kQ, [](Request& r) { Seq(r).set_sharing(v1::SHARING_BITMAP); }, kInvalid,
       Reason::kFieldInvalid, "sequences[0].shared_bitmap"},
      {"bitmap of another table", kQ,
       [](Request& r) {
         Seq(r).set_sharing(v1::SHARING_BITMAP);
         Seq(r).set_shared_bitmap("ab");
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].shared_bitmap"},
      {"bitmap without use", kQ, [](Request& r) { Seq(r).set_shared_bitmap("a"); }, kInvalid,
       Reason::kFieldInvalid, "sequences[0].shared_bitmap"},
      {"destination in place", kQ,
       [](Request& r) { Seq(r).mutable_destination()->set_inline_le(""); }, kInvalid,
       Reason::kFieldInvalid, "sequences[0].destination"},
      {"copy without destination", kQ,
       [](Request& r) { r.mutable_act()->mutable_copy_to()->set_cache_id(1); }, kInvalid,
       Reason::kFieldMissing, "sequences[0].destination"},
      {"destination not int32", kQ,
       [](Request& r) {
         r.mutable_act()->mutable_copy_to()->set_cache_id(1);
         Seq(r).mutable_destination()->set_inline_le("a");
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].destination"},
      {"query rows above the limit", kQ, [](Request& r) { Seq(r).set_rows_count((1u << 24) + 1); },
       kInvalid, Reason::kTooMany, "sequences[0].rows_count"},
      // Kind: the layout of statistics. https://github.com/Dao-AILab/flash-attention/pull/970
      {"query rows past the axis", kQ, [](Request& r) { Seq(r, 1).set_rows_begin(5); }, kInvalid,
       Reason::kFieldInvalid, "sequences[1].rows_count"},
      {"row numbers wrap", kQ, [](Request& r) { Seq(r, 1).set_rows_begin(0xFFFFFFFF); }, kInvalid,
       Reason::kFieldInvalid, "sequences[1].rows_count"},
      {"more query rows than rows", kQ,
       [](Request& r) {
         Seq(r, 1).set_rows_count(4);
         Seq(r, 1).set_rows_begin(0);
       },
       kInvalid, Reason::kFieldInvalid, "sequences[1].rows_count"},
      {"limits not one per row", kQ,
       [](Request& r) {
         Seq(r).mutable_row_limits()->set_inline_le(Int32Bytes({1, 2, 3}));
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].row_limits"},
      {"limit past the sequence", kQ,
       [](Request& r) {
         Seq(r).mutable_row_limits()->set_inline_le(Int32Bytes({1, 2, 3, 21}));
       },
       kOutOfRange, Reason::kIndexOutOfRange, "sequences[0].row_limits"},
      {"negative limit", kQ,
       [](Request& r) {
         Seq(r).mutable_row_limits()->set_inline_le(Int32Bytes({1, -2, 3, 4}));
       },
       kOutOfRange, Reason::kIndexOutOfRange, "sequences[0].row_limits"},
  };
  return *rows;
}

const std::vector<Row>& ProtectRowsTable() {
  static const auto* const rows = new std::vector<Row>{
      // Kind: rows moved while read. https://github.com/ggml-org/llama.cpp/issues/12253
      {"explicit rows unsorted", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {3}, {5, 0, 3});
       },
       kInvalid, Reason::kIndexInvalid, "sequences[0].protect.indices_le"},
      {"explicit row twice", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {2}, {5, 5});
       },
       kInvalid, Reason::kIndexInvalid, "sequences[0].protect.indices_le"},
      {"explicit row outside", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {2}, {5, 20});
       },
       kOutOfRange, Reason::kIndexOutOfRange, "sequences[0].protect.indices_le"},
      {"negative explicit row", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {2}, {-1, 5});
       },
       kOutOfRange, Reason::kIndexOutOfRange, "sequences[0].protect.indices_le"},
      {"no granularity", kQ, [](Request& r) { Protect(r, v1::GRANULARITY_UNSPECIFIED, {1}, {5}); },
       kInvalid, Reason::kEnumUnspecified, "sequences[0].protect.granularity"},
      {"no lists", kQ, [](Request& r) { Protect(r, v1::GRANULARITY_PER_SEQUENCE, {}, {}); },
       kInvalid, Reason::kFieldMissing, "sequences[0].protect.counts_le"},
      {"two lists for one sequence", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {1, 1}, {5, 6});
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].protect.counts_le"},
      {"counts and indices disagree", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_SEQUENCE, {3}, {5, 6});
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].protect.indices_le"},
      {"negative count", kQ,
       [](Request& r) {
         Protect(r, v1::GRANULARITY_PER_HEAD, {3, -1}, {5, 6});
       },
       kInvalid, Reason::kFieldInvalid, "sequences[0].protect.counts_le"},
      {"65,537 lists", kQ,
       [](Request& r) { Protect(r, v1::GRANULARITY_PER_HEAD, std::vector<int32_t>(65537), {}); },
       kInvalid, Reason::kTooMany, "sequences[0].protect.counts_le"},
      {"more explicit rows than the budget", kQ,
       [](Request& r) {
         Parts(r).mutable_budget()->set_kept_tokens(2);
         Protect(r, v1::GRANULARITY_PER_HEAD, {1, 3}, {1, 5, 6, 7});
       },
       kInvalid, Reason::kBudgetTooSmall, "sequences[0].protect"},
      {"adaptive with rows per head", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("adakv");
         Protect(r, v1::GRANULARITY_PER_HEAD, {1, 1}, {1, 5});
       },
       kInvalid, Reason::kPolicyInvalid, "sequences[0].protect.granularity"},
      {"rows per head, sets per layer", kQ,
       [](Request& r) {
         r.mutable_policy()->set_name("tova");
         Protect(r, v1::GRANULARITY_PER_HEAD, {1, 1}, {1, 5});
       },
       kInvalid, Reason::kPolicyInvalid, "sequences[0].protect.granularity"},
      {"rows per layer, one set", kQ,
       [](Request& r) {
         Parts(r).set_granularity(v1::GRANULARITY_PER_SEQUENCE);
         Protect(r, v1::GRANULARITY_PER_LAYER, {1, 1}, {1, 5});
       },
       kInvalid, Reason::kPolicyInvalid, "sequences[0].protect.granularity"},
  };
  return *rows;
}

const std::vector<Row>& InputRows() {
  static const auto* const rows = new std::vector<Row>{
      {"no inputs for a scorer with queries", kQ, [](Request& r) { r.clear_inputs(); }, kInvalid,
       Reason::kPolicyInvalid, "inputs"},
      {"keys only for a scorer with queries", kQ,
       [](Request& r) { r.mutable_inputs()->mutable_keys_only(); }, kInvalid,
       Reason::kPolicyInvalid, "inputs.keys_only"},
      {"no source", kQ, [](Request& r) { r.mutable_inputs()->clear_source(); }, kInvalid,
       Reason::kFieldMissing, "inputs.source"},
      {"no query rows for one sequence", kQ, [](Request& r) { Seq(r, 1).set_rows_count(0); },
       kInvalid, Reason::kPolicyInvalid, "sequences[1].rows_count"},
      {"query rows and nothing brought", kKeys, [](Request& r) { Seq(r).set_rows_count(1); },
       kInvalid, Reason::kFieldInvalid, "sequences[0].rows_count"},
      {"window all, too few query rows", kQ,
       [](Request& r) { r.mutable_policy()->set_name("h2o"); }, kInvalid, Reason::kFieldInvalid,
       "sequences[0].rows_count"},
      {"no q", kQ, [](Request& r) { r.mutable_inputs()->mutable_query()->clear_q(); }, kInvalid,
       Reason::kFieldMissing, "inputs.query.q"},
      {"no stage", kQ, [](Request& r) { r.mutable_inputs()->mutable_query()->clear_stage(); },
       kInvalid, Reason::kEnumUnspecified, "inputs.query.stage"},
      {"scale not given", kQ, [](Request& r) { r.mutable_inputs()->clear_softmax_scale(); },
       kInvalid, Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"negative scale", kQo, [](Request& r) { r.mutable_inputs()->set_softmax_scale(-1); },
       kInvalid, Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"NaN scale", kQ, [](Request& r) { r.mutable_inputs()->set_softmax_scale(kNan); }, kInvalid,
       Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"infinite scale", kQ, [](Request& r) { r.mutable_inputs()->set_softmax_scale(kInf); },
       kInvalid, Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"scale infinite in float32", kQ,
       [](Request& r) { r.mutable_inputs()->set_softmax_scale(1e300); }, kInvalid,
       Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"scale 0 in float32", kQ, [](Request& r) { r.mutable_inputs()->set_softmax_scale(1e-300); },
       kInvalid, Reason::kFieldInvalid, "inputs.softmax_scale"},
      {"negative softcap", kQ, [](Request& r) { r.mutable_inputs()->set_logit_softcap(-1); },
       kInvalid, Reason::kFieldInvalid, "inputs.logit_softcap"},
      {"NaN softcap", kReady, [](Request& r) { r.mutable_inputs()->set_logit_softcap(kNan); },
       kInvalid, Reason::kFieldInvalid, "inputs.logit_softcap"},
      {"infinite softcap", kQo, [](Request& r) { r.mutable_inputs()->set_logit_softcap(kInf); },
       kInvalid, Reason::kFieldInvalid, "inputs.logit_softcap"},
      {"softcap 0 in float32", kQ, [](Request& r) { r.mutable_inputs()->set_logit_softcap(1e-60); },
       kInvalid, Reason::kFieldInvalid, "inputs.logit_softcap"},
      {"two sinks per head", kQ,
       [](Request& r) { *r.mutable_inputs()->mutable_sink_logits() = PackedTensor(2, 1, 8, 2); },
       kInvalid, Reason::kGeometryInvalid, "inputs.sink_logits.elems"},
      {"sinks per row", kQ,
       [](Request& r) { *r.mutable_inputs()->mutable_sink_logits() = PackedTensor(2, 7, 8, 1); },
       kInvalid, Reason::kGeometryInvalid, "inputs.sink_logits.rows"},
      {"slopes without a region", kQ,
       [](Request& r) {
         *r.mutable_inputs()->mutable_alibi_slopes() = PackedTensor(2, 1, 8, 1);
         r.mutable_inputs()->mutable_alibi_slopes()->clear_region_id();
       },
       kInvalid, Reason::kFieldMissing, "inputs.alibi_slopes.region_id"},
      {"no o", kQo, [](Request& r) { r.mutable_inputs()->mutable_query_output()->clear_o(); },
       kInvalid, Reason::kFieldMissing, "inputs.query_output.o"},
      {"no lse", kQo, [](Request& r) { r.mutable_inputs()->mutable_query_output()->clear_lse(); },
       kInvalid, Reason::kFieldMissing, "inputs.query_output.lse"},
      {"lse in fp8", kQo,
       [](Request& r) {
         v1::Tensor& lse = *r.mutable_inputs()->mutable_query_output()->mutable_lse();
         lse.set_dtype(v1::DTYPE_FP8_E5M2);
       },
       kInvalid, Reason::kFieldInvalid, "inputs.query_output.lse.dtype"},
      {"no lse base", kQo,
       [](Request& r) { r.mutable_inputs()->mutable_query_output()->clear_lse_base(); }, kInvalid,
       Reason::kEnumUnspecified, "inputs.query_output.lse_base"},
      {"two lse per row", kQo,
       [](Request& r) {
         *r.mutable_inputs()->mutable_query_output()->mutable_lse() = PackedTensor(2, 7, 8, 2);
       },
       kInvalid, Reason::kGeometryInvalid, "inputs.query_output.lse.elems"},
      {"rows past the shortest tensor", kQo,
       [](Request& r) {
         *r.mutable_inputs()->mutable_query_output()->mutable_o() = PackedTensor(2, 6, 8, 64);
       },
       kInvalid, Reason::kFieldInvalid, "sequences[1].rows_count"},
      {"no a", kReady, [](Request& r) { r.mutable_inputs()->mutable_attention()->clear_a(); },
       kInvalid, Reason::kFieldMissing, "inputs.attention.a"},
      {"no z for the key term", kReady,
       [](Request& r) {
         r.mutable_policy()->set_name("snapkv+obc-key");
         r.mutable_inputs()->mutable_attention()->clear_z();
       },
       kInvalid, Reason::kFieldMissing, "inputs.attention.z"},
      {"no o for exact deletion", kReady,
       [](Request& r) {
         r.mutable_policy()->set_name("snapkv+drop");
         r.mutable_inputs()->mutable_attention()->clear_o();
       },
       kInvalid, Reason::kFieldMissing, "inputs.attention.o"},
      {"no o for the oracle", kReady,
       [](Request& r) {
         r.mutable_measure()->set_oracle_recall(true);
         r.mutable_inputs()->mutable_attention()->clear_o();
       },
       kInvalid, Reason::kFieldMissing, "inputs.attention.o"},
      {"a narrower than the sequence", kReady,
       [](Request& r) {
         *r.mutable_inputs()->mutable_attention()->mutable_a() = PackedTensor(2, 7, 8, 19);
       },
       kInvalid, Reason::kGeometryInvalid, "inputs.attention.a.elems"},
      {"column sums for another scorer", kSums,
       [](Request& r) { r.mutable_policy()->set_name("snapkv+drop"); }, kInvalid,
       Reason::kPolicyInvalid, "inputs.column_sums"},
      {"no head axis", kSums,
       [](Request& r) { r.mutable_inputs()->mutable_column_sums()->clear_heads(); }, kInvalid,
       Reason::kEnumUnspecified, "inputs.column_sums.heads"},
      {"no sums", kSums,
       [](Request& r) { r.mutable_inputs()->mutable_column_sums()->clear_sums(); }, kInvalid,
       Reason::kFieldMissing, "inputs.column_sums.sums"},
      {"summed over heads, sets per head", kSums,
       [](Request& r) {
         r.mutable_inputs()->mutable_column_sums()->set_heads(v1::HEAD_AXIS_SUMMED);
       },
       kInvalid, Reason::kPolicyInvalid, "inputs.column_sums.heads"},
      {"summed over heads, eight rows", kSums,
       [](Request& r) {
         r.mutable_policy()->set_name("tova");
         r.mutable_inputs()->mutable_column_sums()->set_heads(v1::HEAD_AXIS_SUMMED);
       },
       kInvalid, Reason::kGeometryInvalid, "inputs.column_sums.sums.heads"},
      {"sums narrower than the sequence", kSums,
       [](Request& r) {
         *r.mutable_inputs()->mutable_column_sums()->mutable_sums() = PackedTensor(2, 2, 8, 19);
       },
       kInvalid, Reason::kGeometryInvalid, "inputs.column_sums.sums.elems"},
      {"two rows of sums for a sequence", kSums, [](Request& r) { Seq(r).set_rows_count(2); },
       kInvalid, Reason::kFieldInvalid, "sequences[0].rows_count"},
      {"limits for sums", kSums,
       [](Request& r) { Seq(r).mutable_row_limits()->set_inline_le(Int32Bytes({20})); }, kInvalid,
       Reason::kFieldInvalid, "sequences[0].row_limits"},
  };
  return *rows;
}

// Changes to one tensor; every tensor goes through the same reader.
const std::vector<Row>& TensorRows() {
  const auto q = [](Request& r) -> v1::Tensor& {
    return *r.mutable_inputs()->mutable_query()->mutable_q();
  };
  static const auto* const rows = new std::vector<Row>{
      {"no region", kQ, [q](Request& r) { q(r).clear_region_id(); }, kInvalid,
       Reason::kFieldMissing, "inputs.query.q.region_id"},
      {"no dtype", kQ, [q](Request& r) { q(r).clear_dtype(); }, kInvalid, Reason::kEnumUnspecified,
       "inputs.query.q.dtype"},
      {"unknown dtype", kQ, [q](Request& r) { q(r).set_dtype(static_cast<v1::DType>(6)); },
       kInvalid, Reason::kEnumUnspecified, "inputs.query.q.dtype"},
      {"0 layers", kQ, [q](Request& r) { q(r).set_layers(0); }, kInvalid, Reason::kFieldInvalid,
       "inputs.query.q.layers"},
      {"0 rows", kQ, [q](Request& r) { q(r).set_rows(0); }, kInvalid, Reason::kFieldInvalid,
       "inputs.query.q.rows"},
      {"0 heads", kQ, [q](Request& r) { q(r).set_heads(0); }, kInvalid, Reason::kFieldInvalid,
       "inputs.query.q.heads"},
      {"0 elems", kQ, [q](Request& r) { q(r).set_elems(0); }, kInvalid, Reason::kFieldInvalid,
       "inputs.query.q.elems"},
      {"misaligned offset", kQ, [q](Request& r) { q(r).set_offset(2); }, kInvalid,
       Reason::kFieldInvalid, "inputs.query.q.offset"},
      {"misaligned stride", kQ, [q](Request& r) { q(r).set_row_stride(2050); }, kInvalid,
       Reason::kFieldInvalid, "inputs.query.q.row_stride"},
      {"stride 0 on a long axis", kQ, [q](Request& r) { q(r).set_head_stride(0); }, kInvalid,
       Reason::kFieldInvalid, "inputs.query.q.head_stride"},
      {"strides wrap", kQ, [q](Request& r) { q(r).set_layer_stride(~uint64_t{0} - 1023); },
       kInvalid, Reason::kGeometryOverflow, "inputs.query.q"},
      {"extents wrap", kQ,
       [q](Request& r) {
         q(r).set_layers(0xFFFFFFFF);
         q(r).set_rows(0xFFFFFFFF);
         q(r).set_layer_stride(4);
         q(r).set_row_stride(4);
       },
       kInvalid, Reason::kGeometryOverflow, "inputs.query.q"},
  };
  return *rows;
}

void ExpectRows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Request request = ValidCompressFrom(row.source);
    ASSERT_TRUE(ParseCompress(request, Limits(), {}).ok());
    row.change(request);
    ExpectRefusal(ParseCompress(request, Limits(), {}).status(), row.code, row.reason, row.field);
  }
}

TEST(CompressRefusals, HeaderAndShape) { ExpectRows(HeaderAndShapeRows()); }
TEST(CompressRefusals, Sequences) { ExpectRows(SequenceRows()); }
TEST(CompressRefusals, ExplicitRows) { ExpectRows(ProtectRowsTable()); }
TEST(CompressRefusals, Inputs) { ExpectRows(InputRows()); }
TEST(CompressRefusals, Tensors) { ExpectRows(TensorRows()); }

TEST(CompressRefusals, SayWhichEntryAndBothNumbers) {
  Request request = ValidCompress();
  Protect(request, v1::GRANULARITY_PER_HEAD, {2, 3}, {1, 5, 4, 6, 6});
  auto info = GetErrorInfo(ParseCompress(request, Limits(), {}).status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->index, 4u);

  request = ValidCompress();
  Seq(request).set_physical_len(100);
  info = GetErrorInfo(ParseCompress(request, Limits(), {}).status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->got, 100u);
  EXPECT_EQ(info->limit, 20u);
}

}  // namespace
}  // namespace kvtriage
