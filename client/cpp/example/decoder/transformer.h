// The transformer without its cache: what happens to rows between one attention and the next. Who
// calls it decides where keys and values are kept and which of them a row sees.
#ifndef KVTRIAGE_DECODER_TRANSFORMER_H_
#define KVTRIAGE_DECODER_TRANSFORMER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/example/decoder/rotary.h"
#include "client/cpp/example/decoder/weights.h"

namespace kvtriage::decoder {

// x / sqrt(mean(x^2) + epsilon) * weight, row by row.
std::vector<float> RmsNorm(std::span<const float> x, std::span<const float> weight, double epsilon);

class Transformer {
 public:
  explicit Transformer(const Weights& weights);  // which outlive it

  const ModelConfig& config() const { return weights_->config; }
  const Weights& weights() const { return *weights_; }

  // [rows][hidden]: the residual stream of tokens, each below config().vocabulary.
  std::vector<float> Embed(std::span<const int32_t> tokens) const;

  struct Projected {
    std::vector<float> queries_before_rope, queries;  // [rows][query_heads][head_size]
    std::vector<float> keys, values;                  // [rows][kv_heads][head_size], keys turned
  };
  Projected Project(uint32_t layer, std::span<const float> x,
                    std::span<const int32_t> positions) const;

  // The rest of the layer: x += W_O attended, then x += MLP(norm(x)).
  void Finish(uint32_t layer, std::span<const float> attended, std::vector<float>& x) const;

  // [vocabulary]: the logits behind one row.
  std::vector<float> Logits(std::span<const float> row) const;

 private:
  const Weights* weights_;
  Rotary rotary_;
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_TRANSFORMER_H_
