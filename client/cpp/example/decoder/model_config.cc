#include "client/cpp/example/decoder/model_config.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"
#include "nlohmann/json.hpp"

namespace kvtriage::decoder {
namespace {

using Json = nlohmann::json;

// Far above every model of this shape, and small enough that no product of two overflows 64 bits.
struct Bound {
  const char* name;
  uint32_t ModelConfig::*number;
  uint32_t most;
};
constexpr Bound kBounds[] = {
    {"vocabulary", &ModelConfig::vocabulary, 1u << 20},
    {"hidden", &ModelConfig::hidden, 1u << 16},
    {"intermediate", &ModelConfig::intermediate, 1u << 18},
    {"layers", &ModelConfig::layers, 512},
    {"query_heads", &ModelConfig::query_heads, 1024},
    {"kv_heads", &ModelConfig::kv_heads, 1024},
    {"head_size", &ModelConfig::head_size, 576},
};

absl::Status Missing(const char* key) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": missing, or not a number it can be"));
}

// A number of the configuration; `fallback` where the key may be absent.
absl::StatusOr<uint32_t> Count(const Json& json, const char* key,
                               std::optional<uint32_t> fallback = std::nullopt) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) {
    if (fallback.has_value()) return *fallback;
    return Missing(key);
  }
  if (!found->is_number_unsigned() || found->get<uint64_t>() > UINT32_MAX) return Missing(key);
  return found->get<uint32_t>();
}

absl::StatusOr<double> Number(const Json& json, const char* key, double fallback) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return fallback;
  if (!found->is_number()) return Missing(key);
  return found->get<double>();
}

// What this decoder does not compute is refused, never dropped.
absl::Status RefuseOthers(const Json& json) {
  const auto differs = [&](const char* key, const Json& same) {
    return json.contains(key) && !json[key].is_null() && json[key] != same;
  };
  for (const auto& [key, same] : {std::pair<const char*, Json>{"model_type", "llama"},
                                  {"hidden_act", "silu"},
                                  {"attention_bias", false},
                                  {"mlp_bias", false}}) {
    if (differs(key, same)) {
      return absl::UnimplementedError(
          absl::StrCat(key, ": this decoder computes ", same.dump(), " only"));
    }
  }
  if (json.contains("rope_scaling") && !json["rope_scaling"].is_null()) {
    return absl::UnimplementedError("rope_scaling: this decoder has unscaled speeds only");
  }
  if (json.value("rope_interleaved", Json(false)) == Json(true)) {
    return absl::UnimplementedError("rope_interleaved: this decoder turns half-split pairs only");
  }
  return absl::OkStatus();
}

// Newer files keep the base inside `rope_parameters`.
absl::StatusOr<double> Theta(const Json& json) {
  const auto found = json.find("rope_parameters");
  if (found == json.end() || !found->is_object()) return Number(json, "rope_theta", 10000);
  if (found->value("rope_type", Json("default")) != Json("default")) {
    return absl::UnimplementedError("rope_parameters: this decoder has unscaled speeds only");
  }
  return Number(*found, "rope_theta", 10000);
}

}  // namespace

absl::Status CheckConfig(const ModelConfig& config) {
  for (const Bound& bound : kBounds) {
    const uint32_t number = config.*bound.number;
    if (number == 0 || number > bound.most) {
      return absl::InvalidArgumentError(
          absl::StrCat(bound.name, ": got ", number, ", must be 1 to ", bound.most));
    }
  }
  if (config.query_heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "query_heads: ", config.query_heads, " is not a multiple of kv_heads, ", config.kv_heads));
  }
  if (config.head_size % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_size: ", config.head_size, " is odd, so its channels make no pairs"));
  }
  if (!std::isfinite(config.rope_theta) || config.rope_theta <= 1) {
    return absl::InvalidArgumentError(absl::StrCat("rope_theta: got ", config.rope_theta));
  }
  if (!std::isfinite(config.rms_epsilon) || config.rms_epsilon < 0) {
    return absl::InvalidArgumentError(absl::StrCat("rms_epsilon: got ", config.rms_epsilon));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ConfigFromJson(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  KVTRIAGE_RETURN_IF_ERROR(RefuseOthers(json));
  ModelConfig config;
  KVTRIAGE_ASSIGN_OR_RETURN(config.vocabulary, Count(json, "vocab_size"));
  KVTRIAGE_ASSIGN_OR_RETURN(config.hidden, Count(json, "hidden_size"));
  KVTRIAGE_ASSIGN_OR_RETURN(config.intermediate, Count(json, "intermediate_size"));
  KVTRIAGE_ASSIGN_OR_RETURN(config.layers, Count(json, "num_hidden_layers"));
  KVTRIAGE_ASSIGN_OR_RETURN(config.query_heads, Count(json, "num_attention_heads"));
  KVTRIAGE_ASSIGN_OR_RETURN(config.kv_heads,
                            Count(json, "num_key_value_heads", config.query_heads));
  const uint32_t heads = config.query_heads == 0 ? 1 : config.query_heads;
  KVTRIAGE_ASSIGN_OR_RETURN(config.head_size, Count(json, "head_dim", config.hidden / heads));
  KVTRIAGE_ASSIGN_OR_RETURN(config.rope_theta, Theta(json));
  KVTRIAGE_ASSIGN_OR_RETURN(config.rms_epsilon, Number(json, "rms_norm_eps", 1e-6));
  config.tied_head = json.value("tie_word_embeddings", Json(false)) == Json(true);
  KVTRIAGE_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

}  // namespace kvtriage::decoder
