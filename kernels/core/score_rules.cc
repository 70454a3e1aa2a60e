#include "kernels/core/score_rules.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/error.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {

uint32_t SuppliedRows(const AttentionInput& input) {
  switch (input.source) {
    case AttentionSource::kQuery:
    case AttentionSource::kQueryOutput:
      return input.q.rows;
    case AttentionSource::kReady:
      return input.a.rows;
    case AttentionSource::kNone:
    case AttentionSource::kColumnSums:
      return 0;
  }
  return 0;
}

bool ReadsValues(Scorer scorer) {
  switch (scorer) {
    case Scorer::kObcValue:
    case Scorer::kObcKey:
    case Scorer::kObcJoint:
    case Scorer::kDrop:
    case Scorer::kVatp:
    case Scorer::kCritical:
    case Scorer::kLagKv:
    case Scorer::kExpectedAttention:
      return true;
    case Scorer::kAttention:
    case Scorer::kKeyNorm:
    case Scorer::kKeyDiff:
    case Scorer::kRecency:
    case Scorer::kRandom:
      break;
  }
  return false;
}

bool NeedsOutputs(Scorer scorer) {
  return scorer == Scorer::kObcKey || scorer == Scorer::kObcJoint || scorer == Scorer::kDrop;
}

uint32_t LagTail(uint32_t rows, uint32_t sinks, uint32_t lag) {
  if (rows < uint64_t{sinks} + 2 * uint64_t{lag}) return 0;
  return lag + (rows - sinks) % lag;
}

uint32_t WindowRows(const ScoreRequest& request) {
  const uint32_t rows = std::min(request.window, SuppliedRows(request.input));
  return request.input.row_limits.empty() ? std::min(rows, request.layer.sequence.rows) : rows;
}

bool UsesQueries(Scorer scorer) {
  switch (scorer) {
    case Scorer::kKeyNorm:
    case Scorer::kKeyDiff:
    case Scorer::kLagKv:
    case Scorer::kExpectedAttention:
    case Scorer::kRecency:
    case Scorer::kRandom:
      return false;
    default:
      return true;
  }
}

absl::Status CheckScoreInputs(const ScoreRequest& request) {
  const Scorer scorer = request.spec.scorer;
  if (!UsesQueries(scorer)) return absl::OkStatus();
  if (scorer == Scorer::kCritical) {
    if (request.input.output_projection) return absl::OkStatus();
    return Error(ErrorReason::kFieldMissing, "inputs.output_projection", "the scorer reads it");
  }
  if (request.input.source == AttentionSource::kNone) {
    return Error(ErrorReason::kPolicyInvalid, "policy.scorer", "this scorer needs queries");
  }
  if (request.input.source != AttentionSource::kColumnSums) return absl::OkStatus();
  const bool summed = request.input.sums_axis == HeadAxis::kSummed;
  if (scorer == Scorer::kAttention || (scorer == Scorer::kVatp && !summed)) return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, "policy.scorer",
               "this scorer cannot be computed from these column sums");
}

void ScoreByNumber(const ScoreRequest& request, uint64_t head, std::span<float> scores) {
  const bool random = request.spec.scorer == Scorer::kRandom;
  const uint64_t heads = request.layer.k.layout.heads;
  const uint64_t first = (request.layer_index * heads + head) << 32;
  for (uint64_t p = 0; p < scores.size(); ++p) {
    const uint64_t x = random ? SplitMix64(request.spec.random_key, first + p) >> 40 : p;
    scores[p] = static_cast<float>(x) * (random ? 0x1p-24f : 1.0f);
  }
}

void CountNonfinite(ScoreResult& result) {
  result.nonfinite_tokens = static_cast<uint32_t>(std::count_if(
      result.scores.begin(), result.scores.end(), [](float score) { return std::isnan(score); }));
}

void AverageOverWindow(const ScoreRequest& request, ScoreResult& result) {
  const auto rows = static_cast<float>(std::max(1u, WindowRows(request)));
  for (float& score : result.scores) score /= rows;
}

void FinishCritical(const ScoreSpec& spec, ScoreResult& result) {
  const auto epsilon = static_cast<float>(spec.epsilon);
  for (size_t i = 0; i < result.scores.size(); ++i) {
    result.second_scores[i] *= result.scores[i] + epsilon;
  }
}

}  // namespace kvtriage
