// The weights of a model, in float32.
#ifndef KVTRIAGE_DECODER_WEIGHTS_H_
#define KVTRIAGE_DECODER_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/example/decoder/model_config.h"

namespace kvtriage::decoder {

// y = W x. Row-major [out][in], as checkpoints store it.
struct Matrix {
  uint32_t out = 0, in = 0;
  std::vector<float> values;
};

// y[rows][out] = x[rows][in] with every row multiplied by the matrix. The result of a row is the
// same bit for bit whatever rows are beside it.
std::vector<float> Multiply(const Matrix& matrix, std::span<const float> x);

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  Matrix query, key, value, output;
  std::vector<float> mlp_norm;  // [hidden]
  Matrix gate, up, down;
};

struct Weights {
  ModelConfig config;
  Matrix embedding;  // [vocabulary][hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Matrix head;                    // empty when tied

  const Matrix& Head() const { return config.tied_head ? embedding : head; }
};

// One tensor of the model: where it goes and what shape it has. Every loader fills all of them.
enum class Part {
  kEmbedding,
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kFinalNorm,
  kHead,
};
struct Slot {
  Part part = Part::kEmbedding;
  uint32_t layer = 0;           // where the part belongs to one
  std::vector<uint64_t> shape;  // [out][in], or [hidden] for a norm
  std::vector<float>* values = nullptr;

  uint64_t count() const;  // product of the shape
};

// The slots of `weights->config`, which must have passed CheckConfig. Sets the sizes of all
// matrices and allocates no values. The pointers live as long as `weights` stays where it is.
std::vector<Slot> Slots(Weights* weights);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_WEIGHTS_H_
