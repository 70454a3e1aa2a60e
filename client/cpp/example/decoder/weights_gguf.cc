#include "client/cpp/example/decoder/weights_gguf.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/example/decoder/weights_file.h"
#include "client/tensor_files/gguf.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

std::string NameOf(const Slot& slot) {
  const auto in_layer = [&](const char* name) {
    return absl::StrCat("blk.", slot.layer, ".", name, ".weight");
  };
  switch (slot.part) {
    case Part::kEmbedding:
      return "token_embd.weight";
    case Part::kAttentionNorm:
      return in_layer("attn_norm");
    case Part::kQuery:
      return in_layer("attn_q");
    case Part::kKey:
      return in_layer("attn_k");
    case Part::kValue:
      return in_layer("attn_v");
    case Part::kOutput:
      return in_layer("attn_output");
    case Part::kMlpNorm:
      return in_layer("ffn_norm");
    case Part::kGate:
      return in_layer("ffn_gate");
    case Part::kUp:
      return in_layer("ffn_up");
    case Part::kDown:
      return in_layer("ffn_down");
    case Part::kFinalNorm:
      return "output_norm.weight";
    case Part::kHead:
      return "output.weight";
  }
  return "";
}

// What this decoder does not compute is refused, never dropped.
absl::Status RefuseOthers(const GgufFile& file) {
  const std::string architecture = file.Text("general.architecture").value_or("");
  if (architecture != "llama") {
    return absl::UnimplementedError(absl::StrCat("general.architecture: \"", architecture,
                                                 "\"; this decoder computes \"llama\" only"));
  }
  const std::string scaling = file.Text("llama.rope.scaling.type").value_or("none");
  if (scaling != "none" || file.Find("rope_freqs.weight") != nullptr) {
    return absl::UnimplementedError(
        "llama.rope.scaling.type: this decoder has unscaled speeds only");
  }
  if (file.Count("llama.expert_count").value_or(0) != 0) {
    return absl::UnimplementedError("llama.expert_count: this decoder has no experts");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file) {
  KVTRIAGE_RETURN_IF_ERROR(RefuseOthers(file));
  const auto count = [&](const char* name,
                         std::optional<uint64_t> fallback) -> absl::StatusOr<uint32_t> {
    const std::string key = absl::StrCat("llama.", name);
    const std::optional<uint64_t> found = file.Has(key) ? file.Count(key) : fallback;
    if (!found.has_value() || *found > UINT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": missing, or not a number it can be"));
    }
    return static_cast<uint32_t>(*found);
  };
  ModelConfig config;
  const TensorEntry* const embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return absl::NotFoundError("tensor token_embd.weight: missing, or no matrix");
  }
  config.vocabulary = static_cast<uint32_t>(std::min<uint64_t>(embedding->shape[0], UINT32_MAX));
  KVTRIAGE_ASSIGN_OR_RETURN(config.hidden, count("embedding_length", std::nullopt));
  KVTRIAGE_ASSIGN_OR_RETURN(config.intermediate, count("feed_forward_length", std::nullopt));
  KVTRIAGE_ASSIGN_OR_RETURN(config.layers, count("block_count", std::nullopt));
  KVTRIAGE_ASSIGN_OR_RETURN(config.query_heads, count("attention.head_count", std::nullopt));
  KVTRIAGE_ASSIGN_OR_RETURN(config.kv_heads, count("attention.head_count_kv", config.query_heads));
  const uint32_t heads = config.query_heads == 0 ? 1 : config.query_heads;
  KVTRIAGE_ASSIGN_OR_RETURN(config.head_size, count("attention.key_length", config.hidden / heads));
  KVTRIAGE_ASSIGN_OR_RETURN(const uint32_t rotary, count("rope.dimension_count", config.head_size));
  if (rotary != config.head_size) {
    return absl::UnimplementedError("llama.rope.dimension_count: this decoder turns whole heads");
  }
  config.rope_theta = file.Number("llama.rope.freq_base").value_or(10000);
  config.rms_epsilon = file.Number("llama.attention.layer_norm_rms_epsilon").value_or(1e-6);
  config.tied_head = file.Find("output.weight") == nullptr;
  KVTRIAGE_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

// Row 2j + half of a head becomes row half * size/2 + j.
void ToHalfSplit(Matrix& matrix, uint32_t head_size) {
  std::vector<float> ordered(matrix.values.size());
  for (uint32_t row = 0; row < matrix.out; ++row) {
    const uint32_t channel = row % head_size, pair = channel / 2, half = channel % 2;
    const uint64_t to = row - channel + half * (head_size / 2) + pair;
    std::copy_n(matrix.values.begin() + int64_t{row} * matrix.in, matrix.in,
                ordered.begin() + static_cast<int64_t>(to * matrix.in));
  }
  matrix.values = std::move(ordered);
}

}  // namespace

absl::StatusOr<Weights> LoadGguf(const std::string& path) {
  KVTRIAGE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  absl::StatusOr<ModelConfig> config = ReadConfig(file);
  if (!config.ok()) return WithPlace(config.status(), path);
  Weights weights;
  weights.config = *config;
  KVTRIAGE_RETURN_IF_ERROR(FillFrom(file, NameOf, &weights));
  for (LayerWeights& layer : weights.layers) {
    ToHalfSplit(layer.query, weights.config.head_size);
    ToHalfSplit(layer.key, weights.config.head_size);
  }
  return weights;
}

}  // namespace kvtriage::decoder
