#include "kernels/core/expected_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

}  // namespace

void CountGivenMoments(QueryMoments& moments) {
  const bool finite = AllFinite(moments.mean) && AllFinite(moments.covariance);
  (finite ? moments.rows : moments.skipped) = 1;
}

absl::Status CheckUsable(std::span<const uint8_t> usable, uint32_t group) {
  for (size_t first = 0; first < usable.size(); first += group) {
    const std::span<const uint8_t> heads = usable.subspan(first, group);
    if (std::find(heads.begin(), heads.end(), 1) != heads.end()) continue;
    return Error(ErrorReason::kNoUsableRow, "inputs", "no queries of this KV head are finite")
        .Index(first / group);
  }
  return absl::OkStatus();
}

ExpectedForm FormOf(QueryMoments& moments, const AverageTurn& turn, double scale) {
  turn.Apply(moments.mean.data(), 1);
  turn.ApplyBothSides(moments.covariance, moments.mean.size());
  ExpectedForm form;
  for (const double x : moments.mean) form.linear.push_back(static_cast<float>(scale * x));
  form.quadratic.reserve(moments.covariance.size());
  for (const double x : moments.covariance) {
    form.quadratic.push_back(static_cast<float>(scale * scale / 2 * x));
  }
  return form;
}

void ExpectedSoftmax(std::span<const float> norms, uint64_t first, std::span<float> logits) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  float top = -kLargest;
  for (uint64_t p = first; p < logits.size(); ++p) {
    // Numbers beyond float32 count as its ends, so that the others keep their meaning.
    float& logit = logits[p];
    logit = logit >= -kLargest ? std::min(logit, kLargest) : -kLargest;
    if (!std::isnan(norms[p])) top = std::max(top, logit);
  }
  double sum = 0;
  for (uint64_t p = first; p < logits.size(); ++p) {
    if (!std::isnan(norms[p])) sum += std::exp(double{logits[p]} - top);
  }
  for (uint64_t p = first; p < logits.size(); ++p) {
    const bool bad = std::isnan(norms[p]);
    logits[p] = bad ? 0.0f : static_cast<float>(std::exp(double{logits[p]} - top) / sum);
  }
}

void ExpectedScores(std::span<const std::span<const float>> weights, std::span<const float> norms,
                    uint64_t first, uint32_t group, double epsilon, std::span<float> scores) {
  for (uint64_t p = 0; p < scores.size(); ++p) {
    if (std::isnan(norms[p])) {
      scores[p] = norms[p];
    } else if (p >= first) {
      float sum = 0.0f;
      for (const std::span<const float> head : weights) sum += head[p];
      const float weight = sum / static_cast<float>(group) + static_cast<float>(epsilon);
      scores[p] = weight == 0.0f ? 0.0f : weight * norms[p];
    } else {
      scores[p] = 0.0f;
    }
  }
}

}  // namespace kvtriage
