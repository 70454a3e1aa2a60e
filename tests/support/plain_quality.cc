#include "tests/support/plain_quality.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/dtype.h"
#include "tests/support/plain_score.h"

namespace kvtriage {
namespace {

double Value(const LayerRows& layer, uint32_t head, uint64_t p, uint64_t k) {
  return LoadElement(RowAddress(layer.v, layer.sequence, head, p) + k * layer.v.layout.elem_stride,
                     layer.v.layout.dtype) *
         RowScale(layer.v, layer.sequence, head, p);
}

}  // namespace

std::vector<PlainRowQuality> PlainRows(const QualityRequest& request) {
  const LayerRows& layer = request.layer;
  const bool ready = request.input.source == AttentionSource::kReady;
  const uint32_t supplied = ready ? request.input.a.rows : request.input.q.rows;
  const uint32_t group = layer.q_heads / layer.v.layout.heads, dv = layer.v.layout.row_elems;
  const PlainAttention x = PlainAttend(layer, request.input, supplied, true);
  // A given O is the truth only where it belongs to a given LSE.
  AttentionInput own = request.input;
  if (ready) own.o = {};
  const PlainAttention truth = PlainAttend(layer, own, supplied, true);
  std::vector<PlainRowQuality> rows;
  for (uint32_t h = 0; h < x.q_heads; ++h) {
    for (uint32_t i = 0; i < x.rows; ++i) {
      const size_t row = x.Row(h, i);
      if (x.usable[row] == 0) continue;
      PlainRowQuality quality{.q_head = h, .row = i};
      std::vector<double> kept(dv, 0);
      const auto a = [&](uint64_t p) { return x.a[row * x.tokens + p]; };
      for (uint64_t p = 0; p < x.tokens; ++p) quality.total += a(p);
      for (const int32_t p : request.kept[h / group]) {
        if (x.visible[row * x.tokens + static_cast<uint64_t>(p)] == 0) continue;
        quality.mass += a(static_cast<uint64_t>(p));
        for (uint32_t k = 0; k < dv; ++k) {
          kept[k] +=
              a(static_cast<uint64_t>(p)) * Value(layer, h / group, static_cast<uint64_t>(p), k);
        }
      }
      double sink = 0;
      if (request.input.sink_logits && ready) sink = std::max(0.0, 1 - quality.total);
      if (request.input.sink_logits && !ready) {
        const TensorView& sinks = request.input.sink_logits;
        sink = std::exp(LoadElement(sinks.At(0, h, 0), sinks.dtype) - x.lse[row]);
      }
      for (uint32_t k = 0; k < dv; ++k) {
        const double o = truth.o[row * dv + k];
        const double error = (quality.mass > 0 ? kept[k] / (quality.mass + sink) : 0) - o;
        quality.error_square += error * error;
        quality.output_square += o * o;
      }
      rows.push_back(quality);
    }
  }
  return rows;
}

QualityResult PlainQuality(const QualityRequest& request) {
  QualityResult result;
  const uint32_t heads = request.layer.v.layout.heads;
  const uint32_t group = request.layer.q_heads / heads;
  result.heads.resize(heads);
  for (const PlainRowQuality& row : PlainRows(request)) {
    HeadQuality& head = result.heads[row.q_head / group];
    head.mass_low = head.usable_rows == 0 ? row.mass : std::min(head.mass_low, row.mass);
    head.mass_mean += row.mass;
    head.error_high = std::max(head.error_high, std::sqrt(row.error_square) /
                                                    std::max(std::sqrt(row.output_square), 1e-12));
    head.error_squares += row.error_square;
    head.output_squares += row.output_square;
    ++head.usable_rows;
    const double least = request.input.sink_logits ? 0.0 : 0.9;
    const bool sums_to_one = row.total >= least && row.total <= 1.1;
    if (request.input.source == AttentionSource::kQueryOutput && !sums_to_one) {
      result.lse_suspect = true;
    }
  }
  for (HeadQuality& head : result.heads) head.mass_mean /= std::max(head.usable_rows, 1u);
  return result;
}

}  // namespace kvtriage
