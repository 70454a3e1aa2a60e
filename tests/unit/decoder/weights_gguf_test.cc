#include "client/cpp/example/decoder/weights_gguf.h"

#include <functional>

#include "client/cpp/example/decoder/decoder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_content.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/decoder/checkpoint_file.h"

namespace kvtriage::decoder {
namespace {

using testing::HasSubstr;

// The rows of each head in the order of interleaved pairs: pair j is rows 2j and 2j + 1.
std::vector<float> Interleaved(const Matrix& matrix, uint32_t head_size) {
  std::vector<float> rows;
  for (uint32_t head = 0; head < matrix.out; head += head_size) {
    for (uint32_t j = 0; j < head_size / 2; ++j) {
      for (const uint32_t row : {head + j, head + j + head_size / 2}) {
        const float* const from = matrix.values.data() + size_t{row} * matrix.in;
        rows.insert(rows.end(), from, from + matrix.in);
      }
    }
  }
  return rows;
}

GgufContent Converted(const Weights& weights, uint32_t type) {
  const ModelConfig& config = weights.config;
  GgufContent content;
  content.AddText("general.architecture", "llama");
  content.AddCount("llama.embedding_length", config.hidden);
  content.AddCount("llama.feed_forward_length", config.intermediate);
  content.AddCount("llama.block_count", config.layers);
  content.AddCount("llama.attention.head_count", config.query_heads);
  content.AddCount("llama.attention.head_count_kv", config.kv_heads);
  content.AddCount("llama.attention.key_length", config.head_size);
  content.AddCount("llama.rope.dimension_count", config.head_size);
  content.AddNumber("llama.rope.freq_base", static_cast<float>(config.rope_theta));
  content.AddNumber("llama.attention.layer_norm_rms_epsilon",
                    static_cast<float>(config.rms_epsilon));
  const auto add = [&](const std::string& name, const std::vector<float>& values, uint64_t in) {
    std::vector<uint64_t> shape = {values.size()};
    if (in != 0) shape = {values.size() / in, in};
    const bool norm = in == 0;  // converters leave norms in F32
    const DType as = norm || type == 0 ? DType::kF32 : type == 1 ? DType::kF16 : DType::kBF16;
    content.tensors.push_back({name, shape, norm ? 0 : type, Encoded(values, as)});
  };
  add("token_embd.weight", weights.embedding.values, config.hidden);
  for (uint32_t l = 0; l < config.layers; ++l) {
    const LayerWeights& layer = weights.layers[l];
    const std::string at = "blk." + std::to_string(l) + ".";
    add(at + "attn_norm.weight", layer.attention_norm, 0);
    add(at + "attn_q.weight", Interleaved(layer.query, config.head_size), config.hidden);
    add(at + "attn_k.weight", Interleaved(layer.key, config.head_size), config.hidden);
    add(at + "attn_v.weight", layer.value.values, config.hidden);
    add(at + "attn_output.weight", layer.output.values, config.query_width());
    add(at + "ffn_norm.weight", layer.mlp_norm, 0);
    add(at + "ffn_gate.weight", layer.gate.values, config.hidden);
    add(at + "ffn_up.weight", layer.up.values, config.hidden);
    add(at + "ffn_down.weight", layer.down.values, config.intermediate);
  }
  add("output_norm.weight", weights.final_norm, 0);
  if (!config.tied_head) add("output.weight", weights.head.values, config.hidden);
  return content;
}

class GgufWeights : public testing::Test {
 protected:
  absl::StatusOr<Weights> Load(const std::string& content) {
    WriteFile(path_, content);
    return LoadGguf(path_);
  }
  const TempDir directory_;
  const std::string path_ = directory_.File("model.gguf");
};

TEST_F(GgufWeights, EveryNumberIsWhereItBelongs) {
  for (const uint32_t type : {0u, 1u, 30u}) {
    ModelConfig config = SmallConfig();
    config.tied_head = type == 1;
    const Weights want = RandomWeights(config, 6);
    const auto got = Load(Converted(want, type).File());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->config.tied_head, config.tied_head);
    EXPECT_EQ(got->config.vocabulary, config.vocabulary);
    EXPECT_NEAR(got->config.rms_epsilon, config.rms_epsilon, 1e-12);
    const auto names = HuggingFaceNames(want), read = HuggingFaceNames(*got);
    const DType as = type == 0 ? DType::kF32 : type == 1 ? DType::kF16 : DType::kBF16;
    for (const auto& [name, values] : names) {
      ASSERT_EQ(read.at(name)->size(), values->size()) << name;
      EXPECT_EQ(Encoded(*read.at(name), as), Encoded(*values, as)) << name;
    }
  }
}

TEST_F(GgufWeights, WhatIsWrongIsNamed) {
  const GgufContent good = Converted(RandomWeights(SmallConfig(), 6), 0);
  const auto without = [](const char* key) {
    return [key](GgufContent& c) {
      std::erase_if(c.metadata, [key](const auto& entry) { return entry.first == key; });
    };
  };
  const auto tensor = [](const char* name,
                         const std::function<void(GgufContent::Tensor&)>& change) {
    return [name, change](GgufContent& c) {
      for (GgufContent::Tensor& tensor : c.tensors) {
        if (tensor.name == name) change(tensor);
      }
    };
  };
  const struct {
    std::function<void(GgufContent&)> change;
    const char* named;
    absl::StatusCode code;
  } cases[] = {
      {without("general.architecture"), "general.architecture", absl::StatusCode::kUnimplemented},
      {without("llama.block_count"), "llama.block_count: missing",
       absl::StatusCode::kInvalidArgument},
      {[](GgufContent& c) {
         *c.Find("llama.attention.head_count_kv") =
             BytesOfNumber<uint32_t>(9) + BytesOfNumber<uint32_t>(4) + BytesOfNumber<uint64_t>(0);
       },
       "llama.attention.head_count_kv: missing, or not a number",
       absl::StatusCode::kInvalidArgument},
      {[](GgufContent& c) { c.AddText("llama.rope.scaling.type", "yarn"); },
       "llama.rope.scaling.type", absl::StatusCode::kUnimplemented},
      {[](GgufContent& c) { c.AddCount("llama.expert_count", 8); }, "llama.expert_count",
       absl::StatusCode::kUnimplemented},
      {[](GgufContent& c) { c.AddCount("llama.rope.dimension_count", 8); },
       "llama.rope.dimension_count", absl::StatusCode::kUnimplemented},
      {tensor("blk.1.ffn_gate.weight", [](auto& t) { t.name = "gone"; }),
       "tensor blk.1.ffn_gate.weight: missing", absl::StatusCode::kNotFound},
      {tensor("blk.1.ffn_gate.weight", [](auto& t) { std::swap(t.shape[0], t.shape[1]); }),
       "tensor blk.1.ffn_gate.weight: its shape", absl::StatusCode::kInvalidArgument},
      {tensor("blk.2.attn_q.weight", [](auto& t) { t.type = 14; }),
       "tensor blk.2.attn_q.weight: its numbers are Q6_K", absl::StatusCode::kUnimplemented},
      {tensor("token_embd.weight", [](auto& t) { t.name = "gone"; }),
       "tensor token_embd.weight: missing", absl::StatusCode::kNotFound},
  };
  for (const auto& wrong : cases) {
    GgufContent content = good;
    wrong.change(content);
    const auto loaded = Load(content.File());
    EXPECT_EQ(loaded.status().code(), wrong.code) << loaded.status();
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(wrong.named));
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path_));
  }
}

}  // namespace
}  // namespace kvtriage::decoder
