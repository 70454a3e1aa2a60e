#include "client/cli/kept_quality.h"

#include <limits>

#include "client/cli/dump_tensor_spec.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {

absl::StatusOr<KeptQuality> QualityMeter::OnWindow(const LentLayer& layer,
                                                   const std::vector<std::vector<int32_t>>& kept) {
  return Measure(layer, kept, layer.q, {});
}

absl::StatusOr<KeptQuality> QualityMeter::OnLaterQueries(
    const LentLayer& layer, const std::vector<std::vector<int32_t>>& kept) {
  if (layer.future_q.empty()) return KeptQuality{};
  const TensorView q = QueryView(layer.future_q.data(), *layer.shape.future_q);
  const std::vector<int32_t> limits(q.rows, static_cast<int32_t>(layer.rows.sequence.rows));
  return Measure(layer, kept, q, limits);
}

absl::StatusOr<KeptQuality> QualityMeter::Measure(const LentLayer& layer,
                                                  const std::vector<std::vector<int32_t>>& kept,
                                                  const TensorView& q,
                                                  std::span<const int32_t> limits) {
  QualityRequest request;
  request.layer = layer.rows;
  request.input.source = AttentionSource::kQuery;
  request.input.scale = static_cast<float>(scale_);
  request.input.q = q;
  request.input.row_limits = limits;
  request.kept.assign(kept.begin(), kept.end());
  std::vector<QualityResult> results;
  KVTRIAGE_RETURN_IF_ERROR(backend_->Measure({&request, 1}, {}, results));
  KeptQuality quality;
  for (const HeadQuality& head : results.front().heads) {
    const bool measured = head.usable_rows > 0;
    quality.mass_mean.push_back(measured ? head.mass_mean
                                         : std::numeric_limits<double>::quiet_NaN());
    quality.error.push_back(measured ? head.error() : std::numeric_limits<double>::quiet_NaN());
  }
  return quality;
}

}  // namespace kvtriage::cli
