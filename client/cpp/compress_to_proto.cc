#include "client/cpp/compress_to_proto.h"

#include "client/cpp/cache_to_proto.h"
#include "client/cpp/group_to_proto.h"
#include "client/cpp/int32_bytes.h"
#include "client/cpp/policy_proto.h"
#include "client/cpp/sequence_to_proto.h"

namespace kvtriage::client {
namespace {

static_assert(static_cast<int>(QueryStage::kAfterRope) == v1::QUERY_STAGE_AFTER_ROPE);
static_assert(static_cast<int>(LseBase::k2) == v1::LSE_BASE_2);
static_assert(static_cast<int>(HeadAxis::kSummed) == v1::HEAD_AXIS_SUMMED);
static_assert(static_cast<int>(LengthRule::kOne) == v1::LENGTH_RULE_ONE);
static_assert(static_cast<int>(KeptFormat::kIndices) == v1::KEPT_FORMAT_INDICES);
static_assert(static_cast<int>(KeptFormat::kBitmap) == v1::KEPT_FORMAT_BITMAP);
static_assert(static_cast<int>(KeptFormat::kCounts) == v1::KEPT_FORMAT_COUNTS);

class InputsWriter {
 public:
  InputsWriter(v1::ScoreInputs* out, const MemoryIds& ids) : out_(out), ids_(ids) {}

  void operator()(const KeysOnly&) { out_->mutable_keys_only(); }
  void operator()(const QueryWindow& from) {
    auto* const to = out_->mutable_query();
    *to->mutable_q() = ToProto(from.q, ids_);
    to->set_stage(static_cast<v1::QueryStage>(from.stage));
  }
  void operator()(const QueryOutput& from) {
    auto* const to = out_->mutable_query_output();
    *to->mutable_q() = ToProto(from.q, ids_);
    to->set_stage(static_cast<v1::QueryStage>(from.stage));
    *to->mutable_o() = ToProto(from.o, ids_);
    *to->mutable_lse() = ToProto(from.lse, ids_);
    to->set_lse_base(static_cast<v1::LseBase>(from.lse_base));
  }
  void operator()(const ReadyAttention& from) {
    auto* const to = out_->mutable_attention();
    *to->mutable_a() = ToProto(from.a, ids_);
    if (from.z.has_value()) *to->mutable_z() = ToProto(*from.z, ids_);
    if (from.o.has_value()) *to->mutable_o() = ToProto(*from.o, ids_);
  }
  void operator()(const ColumnSums& from) {
    auto* const to = out_->mutable_column_sums();
    *to->mutable_sums() = ToProto(from.sums, ids_);
    to->set_heads(static_cast<v1::HeadAxis>(from.heads));
  }

 private:
  v1::ScoreInputs* out_;
  const MemoryIds& ids_;
};

void SetLogits(v1::ScoreInputs* to, const ScoreInputs& from, const MemoryIds& ids) {
  to->set_softmax_scale(from.softmax_scale);
  to->set_logit_softcap(from.logit_softcap);
  if (from.sink_logits) *to->mutable_sink_logits() = ToProto(*from.sink_logits, ids);
  if (from.alibi_slopes) *to->mutable_alibi_slopes() = ToProto(*from.alibi_slopes, ids);
}

}  // namespace

v1::ScoreInputs ToProto(const ScoreInputs& inputs, const MemoryIds& ids) {
  v1::ScoreInputs out;
  std::visit(InputsWriter(&out, ids), inputs.source);
  SetLogits(&out, inputs, ids);
  if (inputs.output_projection.has_value()) {
    *out.mutable_output_projection() = ToProto(*inputs.output_projection, ids);
  }
  if (inputs.query_mean.has_value()) *out.mutable_query_mean() = ToProto(*inputs.query_mean, ids);
  if (inputs.query_covariance.has_value()) {
    *out.mutable_query_covariance() = ToProto(*inputs.query_covariance, ids);
  }
  return out;
}

v1::Act ToProto(const Act& act, const std::optional<AngleMode>& renumber, uint32_t ledger_slot,
                const MemoryIds& ids) {
  v1::Act out;
  if (const auto* const copy = std::get_if<CopyTo>(&act)) {
    out.mutable_copy_to()->set_cache_id(ids.IdOf(copy->cache));
  } else if (std::holds_alternative<InPlace>(act)) {
    out.mutable_in_place()->set_ledger_slot(ledger_slot);
  } else {
    out.mutable_select_only();
  }
  if (renumber.has_value()) {
    out.mutable_renumber()->set_angles(static_cast<v1::AngleMode>(*renumber));
  }
  return out;
}

v1::Output ToProto(LengthRule lengths, KeptFormat format) {
  v1::Output out;
  out.set_format(static_cast<v1::KeptFormat>(format));
  out.set_lengths(static_cast<v1::LengthRule>(lengths));
  return out;
}

v1::CompressRequest ToProto(const CompressRequest& request, uint32_t ledger_slot,
                            const MemoryIds& ids) {
  v1::CompressRequest out;
  out.set_cache_id(ids.IdOf(request.cache));
  out.set_layers_le(ToBytes(request.layers));
  for (const Sequence& sequence : request.sequences) *out.add_sequences() = ToProto(sequence);
  *out.mutable_policy() = ToProto(request.policy);
  *out.mutable_inputs() = ToProto(request.inputs, ids);
  *out.mutable_act() = ToProto(request.act, request.renumber, ledger_slot, ids);
  *out.mutable_output() = ToProto(request.lengths, request.kept_format);
  out.mutable_measure()->set_retained_mass(request.measure.retained_mass);
  out.mutable_measure()->set_output_error(request.measure.output_error);
  out.mutable_measure()->set_oracle_recall(request.measure.oracle_recall);
  out.set_keep_state(request.keep_state);
  if (request.group.has_value()) *out.mutable_group() = ToProto(*request.group);
  return out;
}

}  // namespace kvtriage::client
