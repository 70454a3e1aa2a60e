#include "client/cpp/example/decoder/weights_safetensors.h"

#include <functional>
#include <random>

#include "client/cpp/example/decoder/weights_random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/decoder/checkpoint_file.h"

namespace kvtriage::decoder {
namespace {

using testing::HasSubstr;

class SafetensorsWeights : public testing::Test {
 protected:
  absl::StatusOr<Weights> Load(const std::string& content) {
    WriteFile(path_, content);
    return LoadSafetensors(path_);
  }
  const TempDir directory_;
  const std::string path_ = directory_.File("model.safetensors");
};

// Every number where it belongs, rounded as the file's type rounds.
TEST_F(SafetensorsWeights, EveryTypeAndBothHeadsAreRead) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    ModelConfig config = SmallConfig();
    config.tied_head = type == DType::kF16;
    const Weights want = RandomWeights(config, 5);
    const auto got = Load(Checkpoint(want, type).File());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->config.tied_head, config.tied_head);
    const auto names = HuggingFaceNames(want), read = HuggingFaceNames(*got);
    for (const auto& [name, values] : names) {
      ASSERT_EQ(read.at(name)->size(), values->size()) << name;
      EXPECT_EQ(Encoded(*read.at(name), type), Encoded(*values, type)) << name;
    }
    EXPECT_EQ(got->layers[1].down.in, config.intermediate);
  }
}

TEST_F(SafetensorsWeights, TheConfigurationMayStandBesideTheFile) {
  const Weights weights = RandomWeights(SmallConfig(), 5);
  SafetensorsContent content = Checkpoint(weights, DType::kF32);
  content.metadata.erase("config");
  const auto without = Load(content.File());
  EXPECT_EQ(without.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("config.json"));
  WriteFile(directory_.File("config.json"), ConfigJson(weights.config).dump());
  EXPECT_TRUE(Load(content.File()).ok());
  WriteFile(directory_.File("config.json"), R"({"model_type": "gpt2"})");
  const auto other = Load(content.File());
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("config.json: model_type"));
}

TEST_F(SafetensorsWeights, WhatIsWrongIsNamed) {
  const SafetensorsContent good = Checkpoint(RandomWeights(SmallConfig(), 5), DType::kF32);
  const struct {
    std::function<void(SafetensorsContent&)> change;
    const char* named;
    absl::StatusCode code;
  } cases[] = {
      {[](auto& c) { c.tensors.erase("model.layers.2.mlp.up_proj.weight"); },
       "tensor model.layers.2.mlp.up_proj.weight: missing", absl::StatusCode::kNotFound},
      {[](auto& c) { c.tensors.erase("lm_head.weight"); }, "tensor lm_head.weight: missing",
       absl::StatusCode::kNotFound},
      {[](auto& c) {
         std::swap(c.tensors["model.layers.0.self_attn.k_proj.weight"],
                   c.tensors["model.layers.0.self_attn.q_proj.weight"]);
       },
       "tensor model.layers.0.self_attn.q_proj.weight: its shape is [32, 48], the configuration "
       "says [96, 48]",
       absl::StatusCode::kInvalidArgument},
      {[](auto& c) {
         TensorContent& norm = c.tensors["model.norm.weight"];
         norm.dtype = "F64";
         norm.data.resize(norm.data.size() * 2);
       },
       "tensor model.norm.weight: its numbers are F64", absl::StatusCode::kUnimplemented},
      {[](auto& c) { c.metadata["config"] = R"({"model_type": "llama"})"; },
       "metadata config: vocab_size", absl::StatusCode::kInvalidArgument},
      // A vocabulary of a million: named before four bytes of it are allocated.
      {[](auto& c) {
         nlohmann::json config =
             nlohmann::json::parse(c.metadata["config"].template get<std::string>());
         config["vocab_size"] = 1 << 20;
         c.metadata["config"] = config.dump();
       },
       "tensor model.embed_tokens.weight: its shape is [97, 48], the configuration says "
       "[1048576, 48]",
       absl::StatusCode::kInvalidArgument},
  };
  for (const auto& wrong : cases) {
    SafetensorsContent content = good;
    wrong.change(content);
    const auto loaded = Load(content.File());
    EXPECT_EQ(loaded.status().code(), wrong.code) << loaded.status();
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(wrong.named));
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path_));
  }
  EXPECT_EQ(LoadSafetensors(directory_.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsWeights, RandomDamageNeverDoesMoreThanFail) {
  ModelConfig config = SmallConfig();
  config.vocabulary = config.intermediate = 4;
  config.layers = 1;
  config.hidden = config.head_size = 4;
  const std::string good = Checkpoint(RandomWeights(config, 1), DType::kBF16).File();
  ASSERT_TRUE(Load(good).ok());
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string content = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (uint32_t i = 0; i < 1 + random() % 4 && !content.empty(); ++i) {
      content[random() % content.size()] = static_cast<char>(random());
    }
    const auto loaded = Load(content);
    if (!loaded.ok()) {
      EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path_));
    }
  }
}

}  // namespace
}  // namespace kvtriage::decoder
