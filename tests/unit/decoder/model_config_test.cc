#include "client/cpp/example/decoder/model_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvtriage::decoder {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// As SmolLM2-135M states itself, apart from what this decoder does not read.
Json Good() {
  return {{"model_type", "llama"},    {"hidden_act", "silu"},      {"vocab_size", 49152},
          {"hidden_size", 576},       {"intermediate_size", 1536}, {"num_hidden_layers", 30},
          {"num_attention_heads", 9}, {"num_key_value_heads", 3},  {"rope_theta", 100000},
          {"rms_norm_eps", 1e-05},    {"rope_scaling", nullptr},   {"tie_word_embeddings", true},
          {"attention_bias", false}};
}

TEST(ModelConfig, ReadsAConfigJson) {
  const auto config = ConfigFromJson(Good().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocabulary, 49152u);
  EXPECT_EQ(config->layers, 30u);
  EXPECT_EQ(config->query_width(), 576u);
  EXPECT_EQ(config->kv_width(), 192u);
  EXPECT_EQ(config->head_size, 64u) << "hidden / heads where head_dim is absent";
  EXPECT_EQ(config->rope_theta, 1e5);
  EXPECT_EQ(config->rms_epsilon, 1e-5);
  EXPECT_TRUE(config->tied_head);
  Json newer = Good();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000}};
  newer["head_dim"] = 32;
  EXPECT_EQ(ConfigFromJson(newer.dump())->rope_theta, 5000);
  EXPECT_EQ(ConfigFromJson(newer.dump())->head_size, 32u);
}

TEST(ModelConfig, WhatIsWrongIsNamed) {
  const struct {
    const char* key;
    Json value;
    const char* named;
    absl::StatusCode code;
  } cases[] = {
      {"vocab_size", nullptr, "vocab_size", absl::StatusCode::kInvalidArgument},
      {"vocab_size", 0, "vocabulary", absl::StatusCode::kInvalidArgument},
      {"hidden_size", -1, "hidden_size", absl::StatusCode::kInvalidArgument},
      {"hidden_size", "576", "hidden_size", absl::StatusCode::kInvalidArgument},
      {"intermediate_size", 5000000000, "intermediate_size", absl::StatusCode::kInvalidArgument},
      {"num_hidden_layers", 4000000000, "layers", absl::StatusCode::kInvalidArgument},
      {"num_attention_heads", 0, "query_heads", absl::StatusCode::kInvalidArgument},
      {"num_key_value_heads", 2, "query_heads", absl::StatusCode::kInvalidArgument},
      {"head_dim", 63, "head_size", absl::StatusCode::kInvalidArgument},
      {"rope_theta", 0, "rope_theta", absl::StatusCode::kInvalidArgument},
      {"rms_norm_eps", -1, "rms_epsilon", absl::StatusCode::kInvalidArgument},
      {"model_type", "gemma2", "model_type", absl::StatusCode::kUnimplemented},
      {"hidden_act", "gelu", "hidden_act", absl::StatusCode::kUnimplemented},
      {"attention_bias", true, "attention_bias", absl::StatusCode::kUnimplemented},
      {"rope_scaling", {{"rope_type", "llama3"}}, "rope_scaling", absl::StatusCode::kUnimplemented},
      {"rope_parameters",
       {{"rope_type", "yarn"}},
       "rope_parameters",
       absl::StatusCode::kUnimplemented},
      {"rope_interleaved", true, "rope_interleaved", absl::StatusCode::kUnimplemented},
  };
  for (const auto& wrong : cases) {
    Json json = Good();
    json[wrong.key] = wrong.value;
    const auto config = ConfigFromJson(json.dump());
    EXPECT_EQ(config.status().code(), wrong.code) << wrong.key << " " << wrong.value;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(wrong.named));
  }
  EXPECT_FALSE(ConfigFromJson("[1]").ok());
  EXPECT_FALSE(ConfigFromJson("{").ok());
}

}  // namespace
}  // namespace kvtriage::decoder
