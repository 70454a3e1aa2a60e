// What kind of model it is: the Llama shape (RMSNorm, grouped-query attention, rotary positions in
// half-split pairs, SwiGLU), described by numbers. As config.json of a checkpoint states them.
#ifndef KVTRIAGE_DECODER_MODEL_CONFIG_H_
#define KVTRIAGE_DECODER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvtriage::decoder {

struct ModelConfig {
  uint32_t vocabulary = 0;
  uint32_t hidden = 0;        // channels of the residual stream
  uint32_t intermediate = 0;  // channels inside the MLP
  uint32_t layers = 0;
  uint32_t query_heads = 0;  // a multiple of kv_heads
  uint32_t kv_heads = 0;
  uint32_t head_size = 0;  // even
  double rope_theta = 10000;
  double rms_epsilon = 1e-6;
  bool tied_head = false;  // the output head is the embedding

  uint32_t query_width() const { return query_heads * head_size; }
  uint32_t kv_width() const { return kv_heads * head_size; }
};

// INVALID_ARGUMENT naming the number that is missing, too large, or does not fit the others.
absl::Status CheckConfig(const ModelConfig& config);

// Reads the text of a config.json. INVALID_ARGUMENT naming the key: missing or not a number.
// UNIMPLEMENTED naming the key: something the model has and this decoder does not (another
// architecture, biases, scaled rotary speeds).
absl::StatusOr<ModelConfig> ConfigFromJson(const std::string& text);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_MODEL_CONFIG_H_
