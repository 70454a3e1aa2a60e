#include "client/cpp/example/decoder/weights_safetensors.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cpp/example/decoder/weights_file.h"
#include "client/tensor_files/safetensors.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

std::string NameOf(const Slot& slot) {
  const auto in_layer = [&](const char* name) {
    return absl::StrCat("model.layers.", slot.layer, ".", name, ".weight");
  };
  switch (slot.part) {
    case Part::kEmbedding:
      return "model.embed_tokens.weight";
    case Part::kAttentionNorm:
      return in_layer("input_layernorm");
    case Part::kQuery:
      return in_layer("self_attn.q_proj");
    case Part::kKey:
      return in_layer("self_attn.k_proj");
    case Part::kValue:
      return in_layer("self_attn.v_proj");
    case Part::kOutput:
      return in_layer("self_attn.o_proj");
    case Part::kMlpNorm:
      return in_layer("post_attention_layernorm");
    case Part::kGate:
      return in_layer("mlp.gate_proj");
    case Part::kUp:
      return in_layer("mlp.up_proj");
    case Part::kDown:
      return in_layer("mlp.down_proj");
    case Part::kFinalNorm:
      return "model.norm.weight";
    case Part::kHead:
      return "lm_head.weight";
  }
  return "";
}

absl::StatusOr<ModelConfig> FindConfig(const SafetensorsFile& file) {
  const auto inside = file.metadata().find("config");
  if (inside != file.metadata().end()) {
    absl::StatusOr<ModelConfig> config = ConfigFromJson(inside->second);
    if (config.ok()) return config;
    return WithPlace(config.status(), absl::StrCat(file.path(), ": metadata config"));
  }
  const std::string path =
      (std::filesystem::path(file.path()).parent_path() / "config.json").string();
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read, and ", file.path(),
                                            " has no configuration in its metadata"));
  }
  std::string text(kMaxConfigBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  absl::StatusOr<ModelConfig> config = ConfigFromJson(text);
  if (config.ok()) return config;
  return WithPlace(config.status(), path);
}

}  // namespace

absl::StatusOr<Weights> LoadSafetensors(const std::string& path) {
  KVTRIAGE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  Weights weights;
  KVTRIAGE_ASSIGN_OR_RETURN(weights.config, FindConfig(file));
  KVTRIAGE_RETURN_IF_ERROR(FillFrom(file, NameOf, &weights));
  return weights;
}

}  // namespace kvtriage::decoder
