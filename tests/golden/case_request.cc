#include "tests/golden/case_request.h"

#include <numbers>
#include <utility>

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
  if (source == "sums") {
    input.source = AttentionSource::kColumnSums;
    input.sums =
        Keep(MakeTensor(ColumnSums(layer, window), s.q_heads, 1, s.rows, DType::kF32, odd));
  }
  return input;
}

TensorView CaseRequest::Keep(DenseTensor tensor) {
  tensors_.push_back(std::move(tensor));
  return tensors_.back().view;
}

}  // namespace kvtriage
