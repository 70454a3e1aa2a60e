#include "service/validate/scorer_tensors_proto.h"

#include <optional>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/inputs_proto.h"
#include "service/validate/limits.h"
#include "service/validate/view_proto.h"

namespace kvtriage {
namespace {

absl::Status ReadTensor(const char* field, bool present, bool needed, const v1::Tensor& tensor,
                        std::optional<TensorSpec>& out) {
  if (!present) return needed ? Missing(field) : absl::OkStatus();
  auto spec = ParseTensor(tensor);
  if (!spec.ok()) return UnderField(spec.status(), field);
  if (IsF8(spec->dtype)) {
    return Invalid(std::string(field) + ".dtype", "fp8 is for queries, outputs and rows");
  }
  out = *spec;
  return absl::OkStatus();
}

absl::Status ParseMoments(const v1::ScoreInputs& inputs, bool needed, ScoreInputsSpec& spec) {
  const bool mean = inputs.has_query_mean(), covariance = inputs.has_query_covariance();
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.query_mean", mean, needed || covariance,
                                      inputs.query_mean(), spec.query_mean));
  return ReadTensor("inputs.query_covariance", covariance, needed || mean,
                    inputs.query_covariance(), spec.query_covariance);
}

}  // namespace

absl::Status ParseScorerTensors(const v1::ScoreInputs& inputs, std::optional<Scorer> scorer,
                                ScoreInputsSpec& spec) {
  const bool expects = scorer == Scorer::kExpectedAttention;
  // Without moments the queries themselves, from before RoPE, will do.
  KVTRIAGE_RETURN_IF_ERROR(ParseMoments(inputs, expects && !spec.before_rope, spec));
  if (expects || (!scorer && inputs.softmax_scale() != 0)) {
    KVTRIAGE_RETURN_IF_ERROR(ParseScale(inputs.softmax_scale(), spec));
  }
  KVTRIAGE_RETURN_IF_ERROR(ReadTensor("inputs.output_projection", inputs.has_output_projection(),
                                      scorer == Scorer::kCritical, inputs.output_projection(),
                                      spec.output_projection));
  if (!spec.output_projection || spec.output_projection->rows <= kMaxHiddenSize) {
    return absl::OkStatus();
  }
  return Error(ErrorReason::kTooMany, "inputs.output_projection.rows", "a larger hidden size")
      .Got(spec.output_projection->rows)
      .Limit(kMaxHiddenSize);
}

}  // namespace kvtriage
