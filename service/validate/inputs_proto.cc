#include "service/validate/inputs_proto.h"

#include <cmath>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/view_proto.h"

namespace kvtriage {
namespace {

// What a scorer reads from ready-made inputs besides A.
bool ReadsLogits(Scorer scorer) { return scorer == Scorer::kObcKey || scorer == Scorer::kObcJoint; }
bool ReadsOutputs(Scorer scorer) { return ReadsLogits(scorer) || scorer == Scorer::kDrop; }

absl::Status ReadTensor(const std::string& field, bool present, const v1::Tensor& tensor,
                        std::optional<TensorSpec>& out) {
  if (!present) return Missing(field);
  auto spec = ParseTensor(tensor);
  if (!spec.ok()) return UnderField(spec.status(), field);
  out = *spec;
  return absl::OkStatus();
}

// Attention, logits and sums: float32 in the formulas, and nothing is left of them in 8 bits.
absl::Status ReadPrecise(const std::string& field, bool present, const v1::Tensor& tensor,
                         std::optional<TensorSpec>& out) {
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor(field, present, tensor, out));
  return IsF8(out->dtype) ? Invalid(field + ".dtype", "fp8 is for queries, outputs and rows")
                          : absl::OkStatus();
}

absl::Status ReadStage(std::string_view field, v1::QueryStage stage, ScoreInputsSpec& spec) {
  spec.before_rope = stage == v1::QUERY_STAGE_BEFORE_ROPE;
  return CheckEnum(field, stage, v1::QueryStage_IsValid);
}

// What the model does to logits, whatever the source.
absl::Status ReadLogits(const v1::ScoreInputs& inputs, ScoreInputsSpec& spec) {
  // A cap that is 0 in the kernels' float32 would mean no cap.
  const double softcap = inputs.logit_softcap();
  const auto narrow = static_cast<float>(softcap);
  if (softcap != 0 && !(narrow > 0.0f && std::isfinite(narrow))) {
    return Invalid("inputs.logit_softcap", "must be finite and not negative");
  }
  spec.logit_softcap = softcap;
  const auto read = [](const std::string& field, bool present, const v1::Tensor& tensor,
                       std::optional<TensorSpec>& out) -> absl::Status {
    if (!present) return absl::OkStatus();
    KVTRIAGE_RETURN_IF_ERROR(ReadPrecise(field, true, tensor, out));
    if (out->rows == 1 && out->elems == 1) return absl::OkStatus();
    const bool rows = out->rows != 1;
    return Error(ErrorReason::kGeometryInvalid, field + (rows ? ".rows" : ".elems"),
                 "one number per query head")
        .Got(rows ? out->rows : out->elems)
        .Limit(1);
  };
  KVTRIAGE_RETURN_IF_ERROR(
      read("inputs.sink_logits", inputs.has_sink_logits(), inputs.sink_logits(), spec.sink_logits));
  return read("inputs.alibi_slopes", inputs.has_alibi_slopes(), inputs.alibi_slopes(),
              spec.alibi_slopes);
}

absl::Status ReadQuery(const v1::ScoreInputs& inputs, ScoreInputsSpec& spec) {
  const v1::ScoreInputs::QueryWindow& query = inputs.query();
  spec.source = AttentionSource::kQuery;
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.query.q", query.has_q(), query.q(), spec.q));
  KVTRIAGE_RETURN_IF_ERROR(ReadStage("inputs.query.stage", query.stage(), spec));
  return ParseScale(inputs.softmax_scale(), spec);
}

absl::Status ReadQueryOutput(const v1::ScoreInputs& inputs, ScoreInputsSpec& spec) {
  const v1::ScoreInputs::QueryOutput& given = inputs.query_output();
  spec.source = AttentionSource::kQueryOutput;
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.query_output.q", given.has_q(), given.q(), spec.q));
  KVTRIAGE_RETURN_IF_ERROR(ReadStage("inputs.query_output.stage", given.stage(), spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.query_output.o", given.has_o(), given.o(), spec.o));
  KVTRIAGE_RETURN_IF_ERROR(
      ReadPrecise("inputs.query_output.lse", given.has_lse(), given.lse(), spec.lse));
  if (spec.lse->elems != 1) {
    return Error(ErrorReason::kGeometryInvalid, "inputs.query_output.lse.elems", "one per row")
        .Got(spec.lse->elems)
        .Limit(1);
  }
  KVTRIAGE_RETURN_IF_ERROR(
      CheckEnum("inputs.query_output.lse_base", given.lse_base(), v1::LseBase_IsValid));
  spec.lse_base = given.lse_base() == v1::LSE_BASE_2 ? LseBase::k2 : LseBase::kE;
  return ParseScale(inputs.softmax_scale(), spec);
}

absl::Status ReadReady(const v1::ScoreInputs::ReadyAttention& ready, const PolicySpec* policy,
                       bool oracle_recall, ScoreInputsSpec& spec) {
  // The recall oracle is exact deletion, which reads O.
  const bool needs_o = oracle_recall || (policy != nullptr && ReadsOutputs(policy->score.scorer));
  const bool needs_z = policy != nullptr && ReadsLogits(policy->score.scorer);
  spec.source = AttentionSource::kReady;
  KVTRIAGE_RETURN_IF_ERROR(ReadPrecise("inputs.attention.a", ready.has_a(), ready.a(), spec.a));
  if (ready.has_z() || needs_z) {
    KVTRIAGE_RETURN_IF_ERROR(ReadPrecise("inputs.attention.z", ready.has_z(), ready.z(), spec.z));
  }
  if (ready.has_o() || needs_o) {
    KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.attention.o", ready.has_o(), ready.o(), spec.o));
  }
  return absl::OkStatus();
}

absl::Status CheckSumsPolicy(const PolicySpec& policy, v1::HeadAxis heads) {
  const Scorer scorer = policy.score.scorer;
  if (scorer != Scorer::kAttention && scorer != Scorer::kVatp) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums",
                 "column sums are for the attention and VATP scorers");
  }
  if (heads == v1::HEAD_AXIS_SUMMED &&
      (scorer != Scorer::kAttention || policy.granularity == Granularity::kPerHead)) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums.heads",
                 "one row for all heads needs the attention scorer and heads that share a set");
  }
  return absl::OkStatus();
}

absl::Status ReadSums(const v1::ScoreInputs::ColumnSums& sums, const PolicySpec* policy,
                      ScoreInputsSpec& spec) {
  if (policy != nullptr) KVTRIAGE_RETURN_IF_ERROR(CheckSumsPolicy(*policy, sums.heads()));
  spec.source = AttentionSource::kColumnSums;
  KVTRIAGE_RETURN_IF_ERROR(
      ReadPrecise("inputs.column_sums.sums", sums.has_sums(), sums.sums(), spec.sums));
  KVTRIAGE_RETURN_IF_ERROR(
      CheckEnum("inputs.column_sums.heads", sums.heads(), v1::HeadAxis_IsValid));
  if (sums.heads() == v1::HEAD_AXIS_QUERY) spec.sums_axis = HeadAxis::kQuery;
  if (sums.heads() == v1::HEAD_AXIS_KV) spec.sums_axis = HeadAxis::kKv;
  if (sums.heads() != v1::HEAD_AXIS_SUMMED) return absl::OkStatus();
  spec.sums_axis = HeadAxis::kSummed;
  if (spec.sums->heads != 1) {
    return Error(ErrorReason::kGeometryInvalid, "inputs.column_sums.sums.heads",
                 "one row for all heads")
        .Got(spec.sums->heads)
        .Limit(1);
  }
  return absl::OkStatus();
}

absl::Status ReadNoQueries(std::string_view field, const PolicySpec* policy) {
  if (policy == nullptr || !UsesQueries(policy->score.scorer)) return absl::OkStatus();
  // The running scores of the sequences may stand in: whether there are some, the engine knows.
  if (policy->window.all && AddsUp(policy->score.scorer)) return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, field, "the scorer needs queries and none were given");
}

struct NamedTensor {
  const char* field;
  const std::optional<TensorSpec>& tensor;
};

}  // namespace

absl::Status ParseScale(double scale, ScoreInputsSpec& spec) {
  // The kernels multiply in float32, so the scale must be a number there too.
  const auto narrow = static_cast<float>(scale);
  if (!(narrow > 0.0f && std::isfinite(narrow))) {
    return Invalid("inputs.softmax_scale", "must be finite and above 0");
  }
  spec.softmax_scale = scale;
  return absl::OkStatus();
}

absl::StatusOr<ScoreInputsSpec> ParseInputs(bool present, const v1::ScoreInputs& inputs,
                                            const PolicySpec* policy, bool oracle_recall) {
  ScoreInputsSpec spec;
  if (!present) {
    KVTRIAGE_RETURN_IF_ERROR(ReadNoQueries("inputs", policy));
    return spec;
  }
  KVTRIAGE_RETURN_IF_ERROR(ReadLogits(inputs, spec));
  switch (inputs.source_case()) {
    case v1::ScoreInputs::kKeysOnly:
      KVTRIAGE_RETURN_IF_ERROR(ReadNoQueries("inputs.keys_only", policy));
      return spec;
    case v1::ScoreInputs::kQuery:
      KVTRIAGE_RETURN_IF_ERROR(ReadQuery(inputs, spec));
      return spec;
    case v1::ScoreInputs::kQueryOutput:
      KVTRIAGE_RETURN_IF_ERROR(ReadQueryOutput(inputs, spec));
      return spec;
    case v1::ScoreInputs::kAttention:
      KVTRIAGE_RETURN_IF_ERROR(ReadReady(inputs.attention(), policy, oracle_recall, spec));
      return spec;
    case v1::ScoreInputs::kColumnSums:
      KVTRIAGE_RETURN_IF_ERROR(ReadSums(inputs.column_sums(), policy, spec));
      return spec;
    case v1::ScoreInputs::SOURCE_NOT_SET:
      break;
  }
  return Missing("inputs.source");
}

absl::Status CheckRowAxis(const ScoreInputsSpec& inputs, const SequenceSpec& sequence) {
  const bool sums = inputs.source == AttentionSource::kColumnSums;
  if (inputs.source == AttentionSource::kNone && sequence.rows_count != 0) {
    return Error(ErrorReason::kFieldInvalid, "rows_count", "the request brings no query rows")
        .Got(sequence.rows_count);
  }
  if (sums && sequence.rows_count != 1) {
    return Error(ErrorReason::kFieldInvalid, "rows_count", "column sums are one row per sequence")
        .Got(sequence.rows_count)
        .Limit(1);
  }
  if (sums && !sequence.row_limits.empty()) {
    return Invalid("row_limits", "column sums have no query rows");
  }
  const uint64_t end = uint64_t{sequence.rows_begin} + sequence.rows_count;
  for (const auto* tensor :
       {&inputs.q, &inputs.o, &inputs.lse, &inputs.a, &inputs.z, &inputs.sums}) {
    if (*tensor && end > (*tensor)->rows) {
      return Error(ErrorReason::kFieldInvalid, "rows_count", "ends past the inputs' row axis")
          .Got(end)
          .Limit((*tensor)->rows);
    }
  }
  if (sums || inputs.source == AttentionSource::kNone) return absl::OkStatus();
  if (sequence.row_limits.empty() && sequence.rows_count > sequence.physical_len) {
    return Error(ErrorReason::kFieldInvalid, "rows_count",
                 "more query rows than cached rows, and no row_limits")
        .Got(sequence.rows_count)
        .Limit(sequence.physical_len);
  }
  return absl::OkStatus();
}

absl::Status CheckInputRows(const ScoreInputsSpec& inputs, const PolicySpec& policy,
                            const SequenceSpec& sequence) {
  KVTRIAGE_RETURN_IF_ERROR(CheckRowAxis(inputs, sequence));
  const bool rows =
      inputs.source != AttentionSource::kNone && inputs.source != AttentionSource::kColumnSums;
  if (!rows || sequence.physical_len == 0) return absl::OkStatus();
  if (policy.score.scorer == Scorer::kExpectedAttention && !inputs.query_mean &&
      sequence.rows_count != sequence.physical_len) {
    return Error(ErrorReason::kFieldInvalid, "rows_count",
                 "expected attention needs the queries of all cached rows, or their mean and "
                 "covariance")
        .Got(sequence.rows_count)
        .Limit(sequence.physical_len);
  }
  if (!UsesQueries(policy.score.scorer)) return absl::OkStatus();
  if (sequence.rows_count == 0) {
    return Error(ErrorReason::kPolicyInvalid, "rows_count", "the scorer needs queries, none given");
  }
  if (policy.window.all && sequence.rows_count < sequence.physical_len) {
    return Error(ErrorReason::kFieldInvalid, "rows_count",
                 "window \"all\" needs the query rows of all cached rows")
        .Got(sequence.rows_count)
        .Limit(sequence.physical_len);
  }
  return absl::OkStatus();
}

absl::Status CheckRowElements(const ScoreInputsSpec& inputs,
                              const std::vector<SequenceSpec>& sequences) {
  uint64_t rows = 0;
  for (const SequenceSpec& sequence : sequences) rows = std::max(rows, sequence.physical_len);
  const NamedTensor per_row[] = {{"inputs.attention.a.elems", inputs.a},
                                 {"inputs.attention.z.elems", inputs.z},
                                 {"inputs.column_sums.sums.elems", inputs.sums}};
  for (const NamedTensor& named : per_row) {
    if (!named.tensor || named.tensor->elems >= rows) continue;
    return Error(ErrorReason::kGeometryInvalid, named.field, "needs one element per cached row")
        .Got(named.tensor->elems)
        .Limit(rows);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
