#include "tests/support/plain_decoder.h"

#include <algorithm>
#include <cmath>

namespace kvtriage {
namespace {

using decoder::Matrix;

Doubles Times(const Matrix& matrix, const Doubles& x) {
  Doubles y(matrix.out);
  for (size_t o = 0; o < matrix.out; ++o) {
    for (size_t i = 0; i < matrix.in; ++i) y[o] += double{matrix.values[o * matrix.in + i]} * x[i];
  }
  return y;
}

Doubles Normed(const Doubles& x, const std::vector<float>& weight, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  Doubles out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * weight[i];
  }
  return out;
}

// Channel j of every head turns with channel j + size/2 by position * theta^(-2j/size).
void Turn(Doubles& row, uint32_t size, double theta, int32_t position) {
  for (size_t head = 0; head < row.size(); head += size) {
    for (uint32_t j = 0; j < size / 2; ++j) {
      const double angle = position * std::pow(theta, -2.0 * j / size);
      const double a = row[head + j], b = row[head + j + size / 2];
      row[head + j] = a * std::cos(angle) - b * std::sin(angle);
      row[head + j + size / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

}  // namespace

PlainDecoder::PlainDecoder(const decoder::Weights& weights)
    : weights_(weights),
      heads_(uint64_t{weights.config.layers} * weights.config.kv_heads),
      attention_(uint64_t{weights.config.layers} * weights.config.query_heads) {}

PlainDecoder::Head& PlainDecoder::At(uint32_t layer, uint32_t kv_head) {
  return heads_[layer * weights_.config.kv_heads + kv_head];
}
const PlainDecoder::Head& PlainDecoder::At(uint32_t layer, uint32_t kv_head) const {
  return heads_[layer * weights_.config.kv_heads + kv_head];
}

void PlainDecoder::Keep(uint32_t layer, uint32_t kv_head, std::span<const int32_t> rows) {
  std::vector<int32_t>& visible = At(layer, kv_head).visible;
  std::vector<int32_t> left;
  for (const int32_t row : rows) left.push_back(visible.at(static_cast<size_t>(row)));
  visible = left;
}

const std::vector<int32_t>& PlainDecoder::Visible(uint32_t layer, uint32_t kv_head) const {
  return At(layer, kv_head).visible;
}
const Doubles& PlainDecoder::Keys(uint32_t layer, uint32_t kv_head) const {
  return At(layer, kv_head).keys;
}
const Doubles& PlainDecoder::Values(uint32_t layer, uint32_t kv_head) const {
  return At(layer, kv_head).values;
}
const Doubles& PlainDecoder::Attention(uint32_t layer, uint32_t query_head) const {
  return attention_[layer * weights_.config.query_heads + query_head];
}

Doubles PlainDecoder::Attend(uint32_t layer, const Doubles& queries) {
  const auto& config = weights_.config;
  const uint32_t size = config.head_size;
  Doubles out(queries.size());
  for (uint32_t h = 0; h < config.query_heads; ++h) {
    const Head& head = At(layer, h / (config.query_heads / config.kv_heads));
    Doubles weight;
    double sum = 0;
    for (const int32_t token : head.visible) {
      double logit = 0;
      for (uint32_t c = 0; c < size; ++c) {
        logit += queries[h * size + c] * head.keys[static_cast<size_t>(token) * size + c];
      }
      weight.push_back(logit / std::sqrt(static_cast<double>(size)));
    }
    const double most = *std::max_element(weight.begin(), weight.end());
    for (double& w : weight) sum += w = std::exp(w - most);
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] /= sum;
      const auto token = static_cast<size_t>(head.visible[i]);
      for (uint32_t c = 0; c < size; ++c) {
        out[h * size + c] += weight[i] * head.values[token * size + c];
      }
    }
    attention_[layer * config.query_heads + h] = weight;
  }
  return out;
}

Doubles PlainDecoder::Step(int32_t token) {
  const auto& config = weights_.config;
  const uint32_t size = config.head_size;
  const float* const row =
      weights_.embedding.values.data() + static_cast<size_t>(token) * config.hidden;
  Doubles x(row, row + config.hidden);
  const auto add = [&x](const Doubles& more) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += more[i];
  };
  for (uint32_t l = 0; l < config.layers; ++l) {
    const decoder::LayerWeights& layer = weights_.layers[l];
    const Doubles normed = Normed(x, layer.attention_norm, config.rms_epsilon);
    Doubles q = Times(layer.query, normed), k = Times(layer.key, normed);
    const Doubles v = Times(layer.value, normed);
    Turn(q, size, config.rope_theta, tokens_);
    Turn(k, size, config.rope_theta, tokens_);
    for (uint32_t h = 0; h < config.kv_heads; ++h) {
      Head& head = At(l, h);
      head.keys.insert(head.keys.end(), k.begin() + h * size, k.begin() + (h + 1) * size);
      head.values.insert(head.values.end(), v.begin() + h * size, v.begin() + (h + 1) * size);
      head.visible.push_back(tokens_);
    }
    add(Times(layer.output, Attend(l, q)));
    const Doubles inner = Normed(x, layer.mlp_norm, config.rms_epsilon);
    Doubles gate = Times(layer.gate, inner);
    const Doubles up = Times(layer.up, inner);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    add(Times(layer.down, gate));
  }
  ++tokens_;
  return Times(weights_.Head(), Normed(x, weights_.final_norm, config.rms_epsilon));
}

Doubles PlainDecoder::Run(std::span<const int32_t> tokens) {
  Doubles logits;
  for (const int32_t token : tokens) logits = Step(token);
  return logits;
}

}  // namespace kvtriage
