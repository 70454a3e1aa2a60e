// Writes small checkpoints, good and bad, as other programs would.
#ifndef KVTRIAGE_TESTS_UNIT_DECODER_CHECKPOINT_FILE_H_
#define KVTRIAGE_TESTS_UNIT_DECODER_CHECKPOINT_FILE_H_

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/example/decoder/weights.h"
#include "kernels/core/dtype.h"
#include "nlohmann/json.hpp"

namespace kvtriage::decoder {

inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Numbers as `type`, rounded.
inline std::string Encoded(const std::vector<float>& values, DType type) {
  std::string bytes(values.size() * ElementBytes(type), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(reinterpret_cast<std::byte*>(bytes.data()) + i * ElementBytes(type), type,
                 values[i]);
  }
  return bytes;
}

struct TensorContent {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string data;
};

struct SafetensorsContent {
  nlohmann::json metadata = nlohmann::json::object();
  std::map<std::string, TensorContent> tensors;

  std::string File() const {
    nlohmann::json header = {{"__metadata__", metadata}};
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      const uint64_t begin = data.size();
      data += tensor.data;
      header[name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t bytes = text.size();
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + text + data;
  }
};

// The names of a Hugging Face Llama checkpoint, written down here once more.
inline std::map<std::string, const std::vector<float>*> HuggingFaceNames(const Weights& weights) {
  std::map<std::string, const std::vector<float>*> names = {
      {"model.embed_tokens.weight", &weights.embedding.values},
      {"model.norm.weight", &weights.final_norm}};
  if (!weights.config.tied_head) names["lm_head.weight"] = &weights.head.values;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const LayerWeights& layer = weights.layers[l];
    const std::string at = "model.layers." + std::to_string(l) + ".";
    names[at + "input_layernorm.weight"] = &layer.attention_norm;
    names[at + "self_attn.q_proj.weight"] = &layer.query.values;
    names[at + "self_attn.k_proj.weight"] = &layer.key.values;
    names[at + "self_attn.v_proj.weight"] = &layer.value.values;
    names[at + "self_attn.o_proj.weight"] = &layer.output.values;
    names[at + "post_attention_layernorm.weight"] = &layer.mlp_norm;
    names[at + "mlp.gate_proj.weight"] = &layer.gate.values;
    names[at + "mlp.up_proj.weight"] = &layer.up.values;
    names[at + "mlp.down_proj.weight"] = &layer.down.values;
  }
  return names;
}

// [in] of a matrix by its name; 0 for a norm.
inline uint64_t InputsOf(const std::string& name, const ModelConfig& config) {
  if (name.find("norm") != std::string::npos) return 0;
  if (name.find("o_proj") != std::string::npos) return config.query_width();
  return name.find("down_proj") != std::string::npos ? config.intermediate : config.hidden;
}

inline nlohmann::json ConfigJson(const ModelConfig& config) {
  return {{"model_type", "llama"},
          {"vocab_size", config.vocabulary},
          {"hidden_size", config.hidden},
          {"intermediate_size", config.intermediate},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.query_heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_size},
          {"rope_theta", config.rope_theta},
          {"rms_norm_eps", config.rms_epsilon},
          {"tie_word_embeddings", config.tied_head}};
}

inline SafetensorsContent Checkpoint(const Weights& weights, DType type) {
  SafetensorsContent content;
  content.metadata["config"] = ConfigJson(weights.config).dump();
  const char* const name_of_type = type == DType::kF32   ? "F32"
                                   : type == DType::kF16 ? "F16"
                                                         : "BF16";
  for (const auto& [name, values] : HuggingFaceNames(weights)) {
    const uint64_t in = InputsOf(name, weights.config);
    std::vector<uint64_t> shape = {values->size()};
    if (in != 0) shape = {values->size() / in, in};
    content.tensors[name] = {name_of_type, shape, Encoded(*values, type)};
  }
  return content;
}

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_TESTS_UNIT_DECODER_CHECKPOINT_FILE_H_
