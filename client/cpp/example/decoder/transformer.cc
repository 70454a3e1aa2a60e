#include "client/cpp/example/decoder/transformer.h"

#include <algorithm>
#include <cmath>

namespace kvtriage::decoder {
namespace {

void Add(std::span<const float> from, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

std::vector<float> RmsNorm(std::span<const float> x, std::span<const float> weight,
                           double epsilon) {
  const size_t width = weight.size();
  std::vector<float> out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += double{x[row + i]} * x[row + i];
    const auto scale =
        static_cast<float>(1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
    for (size_t i = 0; i < width; ++i) out[row + i] = x[row + i] * scale * weight[i];
  }
  return out;
}

Transformer::Transformer(const Weights& weights)
    : weights_(&weights), rotary_(weights.config.rope_theta, weights.config.head_size) {}

std::vector<float> Transformer::Embed(std::span<const int32_t> tokens) const {
  const Matrix& table = weights_->embedding;
  std::vector<float> x;
  x.reserve(tokens.size() * table.in);
  for (const int32_t token : tokens) {
    const auto row = table.values.begin() + static_cast<int64_t>(token) * table.in;
    x.insert(x.end(), row, row + table.in);
  }
  return x;
}

Transformer::Projected Transformer::Project(uint32_t layer, std::span<const float> x,
                                            std::span<const int32_t> positions) const {
  const LayerWeights& weights = weights_->layers[layer];
  const std::vector<float> normed = RmsNorm(x, weights.attention_norm, config().rms_epsilon);
  Projected out;
  out.queries_before_rope = Multiply(weights.query, normed);
  out.queries = out.queries_before_rope;
  out.keys = Multiply(weights.key, normed);
  out.values = Multiply(weights.value, normed);
  rotary_.Turn(out.queries, positions);
  rotary_.Turn(out.keys, positions);
  return out;
}

void Transformer::Finish(uint32_t layer, std::span<const float> attended,
                         std::vector<float>& x) const {
  const LayerWeights& weights = weights_->layers[layer];
  Add(Multiply(weights.output, attended), x);
  const std::vector<float> normed = RmsNorm(x, weights.mlp_norm, config().rms_epsilon);
  std::vector<float> inner = Multiply(weights.gate, normed);
  const std::vector<float> up = Multiply(weights.up, normed);
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];  // SiLU(gate) * up
  }
  Add(Multiply(weights.down, inner), x);
}

std::vector<float> Transformer::Logits(std::span<const float> row) const {
  return Multiply(weights_->Head(), RmsNorm(row, weights_->final_norm, config().rms_epsilon));
}

}  // namespace kvtriage::decoder
