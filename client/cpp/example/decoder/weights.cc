#include "client/cpp/example/decoder/weights.h"

#include "client/cpp/example/decoder/dot.h"

namespace kvtriage::decoder {

std::vector<float> Multiply(const Matrix& matrix, std::span<const float> x) {
  const size_t rows = x.size() / matrix.in;
  std::vector<float> y(rows * matrix.out);
  for (size_t o = 0; o < matrix.out;
       ++o) {  // outside: a row of the matrix is read from memory once
    const float* const weights = matrix.values.data() + o * matrix.in;
    for (size_t r = 0; r < rows; ++r) {
      y[r * matrix.out + o] = Dot(weights, x.data() + r * matrix.in, matrix.in);
    }
  }
  return y;
}

uint64_t Slot::count() const {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  return count;
}

std::vector<Slot> Slots(Weights* weights) {
  const ModelConfig& config = weights->config;
  std::vector<Slot> slots;
  const auto matrix = [&](Part part, uint32_t layer, Matrix& into, uint32_t out, uint32_t in) {
    into.out = out;
    into.in = in;
    slots.push_back({part, layer, {out, in}, &into.values});
  };
  const auto norm = [&](Part part, uint32_t layer, std::vector<float>& into) {
    slots.push_back({part, layer, {config.hidden}, &into});
  };
  matrix(Part::kEmbedding, 0, weights->embedding, config.vocabulary, config.hidden);
  weights->layers.resize(config.layers);
  for (uint32_t l = 0; l < config.layers; ++l) {
    LayerWeights& layer = weights->layers[l];
    norm(Part::kAttentionNorm, l, layer.attention_norm);
    matrix(Part::kQuery, l, layer.query, config.query_width(), config.hidden);
    matrix(Part::kKey, l, layer.key, config.kv_width(), config.hidden);
    matrix(Part::kValue, l, layer.value, config.kv_width(), config.hidden);
    matrix(Part::kOutput, l, layer.output, config.hidden, config.query_width());
    norm(Part::kMlpNorm, l, layer.mlp_norm);
    matrix(Part::kGate, l, layer.gate, config.intermediate, config.hidden);
    matrix(Part::kUp, l, layer.up, config.intermediate, config.hidden);
    matrix(Part::kDown, l, layer.down, config.hidden, config.intermediate);
  }
  norm(Part::kFinalNorm, 0, weights->final_norm);
  if (!config.tied_head) {
    matrix(Part::kHead, 0, weights->head, config.vocabulary, config.hidden);
  }
  return slots;
}

}  // namespace kvtriage::decoder
