#include "tests/golden/case_request.h"

#include <numbers>
#include <utility>

#include "kernels/core/rope_speeds.h"

namespace kvtriage {
namespace {

// Sums of A over the newest `window` query rows, [q_heads, 1, rows].
std::vector<double> ColumnSums(const CaseLayer& layer, uint32_t window) {
  const CaseShape& s = layer.inputs.shape;
  std::vector<double> sums(size_t{s.q_heads} * s.rows);
  for (size_t h = 0; h < s.q_heads; ++h) {
    for (size_t i = s.window - window; i < s.window; ++i) {
      for (size_t p = 0; p < s.rows; ++p)
        sums[h * s.rows + p] += layer.attention.a[(h * s.window + i) * s.rows + p];
    }
  }
  return sums;
}

std::vector<double> Widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// [hidden, q_heads * dv] as [q_heads, hidden, dv].
std::vector<double> ByHead(const std::vector<float>& projection, const CaseShape& s) {
  std::vector<double> out(projection.size());
  for (size_t i = 0; i < s.hidden; ++i) {
    for (size_t h = 0; h < s.q_heads; ++h) {
      for (size_t c = 0; c < s.dv; ++c) {
        out[(h * s.hidden + i) * s.dv + c] = projection[(i * s.q_heads + h) * s.dv + c];
      }
    }
  }
  return out;
}

// Mean [q_heads][dk] and biased covariance [q_heads][dk][dk] of the rows behind the sinks.
void Moments(const std::vector<double>& q, const CaseShape& s, uint32_t sinks,
             std::vector<double>& mean, std::vector<double>& covariance) {
  const double rows = s.rows - sinks;
  mean.assign(size_t{s.q_heads} * s.dk, 0.0);
  covariance.assign(size_t{s.q_heads} * s.dk * s.dk, 0.0);
  for (size_t h = 0; h < s.q_heads; ++h) {
    const double* const head = q.data() + h * s.rows * s.dk;
    double* const m = mean.data() + h * s.dk;
    for (size_t i = sinks; i < s.rows; ++i) {
      for (size_t c = 0; c < s.dk; ++c) m[c] += head[i * s.dk + c] / rows;
    }
    for (size_t i = sinks; i < s.rows; ++i) {
      for (size_t a = 0; a < s.dk; ++a) {
        for (size_t b = 0; b < s.dk; ++b) {
          covariance[(h * s.dk + a) * s.dk + b] +=
              (head[i * s.dk + a] - m[a]) * (head[i * s.dk + b] - m[b]) / rows;
        }
      }
    }
  }
}

}  // namespace

CaseRequest::CaseRequest(const std::vector<CaseLayer>& layers, double scale,
                         const std::string& source, DType type, size_t layout, uint32_t window,
                         uint32_t first_layer) {
  sequence_.rows = layers[0].inputs.shape.rows;
  for (const CaseLayer& layer : layers) {
    const CaseShape& s = layer.inputs.shape;
    caches_.push_back(std::make_unique<PlacedCache>(
        kCacheLayouts[layout], layer.storage.f8.value_or(type), s.q_heads, s.kv_heads, s.rows,
        layer.inputs.k, layer.inputs.v, layer.storage.scales));
    LayerRows rows = caches_.back()->layer();
    if (layer.storage.v_in_k) {
      rows.v = rows.k;
      rows.v.layout.row_elems = s.dv;
    }
    sequence_.layers.push_back({rows, Input(layer, scale, source, type, layout % 2 == 1, window),
                                first_layer + static_cast<uint32_t>(sequence_.layers.size())});
  }
}

AttentionInput CaseRequest::Input(const CaseLayer& layer, double scale, const std::string& source,
                                  DType type, bool odd, uint32_t window) {
  const CaseShape& s = layer.inputs.shape;
  const CaseAttention& at = layer.attention;
  AttentionInput input;
  input.scale = static_cast<float>(scale);
  input.softcap = layer.logits.softcap;
  const auto per_head = [&](const std::vector<double>& numbers) {
    return numbers.empty() ? TensorView{}
                           : Keep(MakeTensor(numbers, s.q_heads, 1, 1, DType::kF32, odd));
  };
  input.alibi_slopes = per_head(layer.logits.alibi_slopes);
  input.sink_logits = per_head(layer.logits.sink_logits);
  const bool given = source == "given" || source == "given2", base2 = source == "given2";
  if (source == "query" || given) {
    input.source = source == "query" ? AttentionSource::kQuery : AttentionSource::kQueryOutput;
    input.q = Keep(MakeTensor(Widen(layer.inputs.q), s.q_heads, s.window, s.dk, type, odd));
  }
  if (given) {
    std::vector<double> lse = at.lse;
    for (double& x : lse) x = static_cast<float>(x) / (base2 ? std::numbers::ln2 : 1.0);
    input.lse_base = base2 ? LseBase::k2 : LseBase::kE;
    input.o = Keep(MakeTensor(at.o, s.q_heads, s.window, s.dv, type, odd));
    input.lse = Keep(MakeTensor(lse, s.q_heads, s.window, 1, DType::kF32, odd));
  }
  if (source == "ready") {
    input.source = AttentionSource::kReady;
    input.a = Keep(MakeTensor(at.a, s.q_heads, s.window, s.rows, DType::kF32, odd));
    input.z = Keep(MakeTensor(at.z, s.q_heads, s.window, s.rows, DType::kF32, odd));
    input.o = Keep(MakeTensor(at.o, s.q_heads, s.window, s.dv, DType::kF32, odd));
  }
  if (s.hidden != 0) {
    input.output_projection = Keep(MakeTensor(ByHead(layer.inputs.output_projection, s), s.q_heads,
                                              s.hidden, s.dv, type, odd));
  }
  if (source == "sums") {
    input.source = AttentionSource::kColumnSums;
    input.sums =
        Keep(MakeTensor(ColumnSums(layer, window), s.q_heads, 1, s.rows, DType::kF32, odd));
  }
  return input;
}

void CaseRequest::ExpectQueries(const std::vector<CaseLayer>& layers, double scale, bool moments,
                                bool spread, uint32_t sinks, DType type, size_t layout) {
  const CaseShape& s = layers[0].inputs.shape;
  rope_.rotary_dim = s.dk;
  rope_.speeds = RopeSpeeds({.theta = 1e4}, s.dk);
  sequence_.next_position = s.rows;
  for (size_t l = 0; l < layers.size(); ++l) {
    TriageLayer& layer = sequence_.layers[l];
    const bool odd = layout % 2 == 1;
    layer.rope = &rope_;
    layer.input.scale = static_cast<float>(scale);
    const std::vector<double> q = Widen(layers[l].inputs.q_before);
    if (!moments) {
      layer.input.source = AttentionSource::kQuery;
      layer.input.q = Keep(MakeTensor(q, s.q_heads, s.rows, s.dk, type, odd));
      continue;
    }
    std::vector<double> mean, covariance;
    Moments(q, s, sinks, mean, covariance);
    if (!spread) covariance.assign(covariance.size(), 0.0);
    layer.input.query_mean = Keep(MakeTensor(mean, s.q_heads, 1, s.dk, DType::kF32, odd));
    layer.input.query_covariance =
        Keep(MakeTensor(covariance, s.q_heads, s.dk, s.dk, DType::kF32, odd));
  }
}

TensorView CaseRequest::Keep(DenseTensor tensor) {
  tensors_.push_back(std::move(tensor));
  return tensors_.back().view;
}

}  // namespace kvtriage
