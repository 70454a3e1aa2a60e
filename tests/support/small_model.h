// A model small enough for float64 loops, and prompts for it.
#ifndef KVTRIAGE_TESTS_SUPPORT_SMALL_MODEL_H_
#define KVTRIAGE_TESTS_SUPPORT_SMALL_MODEL_H_

#include <cstdint>
#include <vector>

#include "client/cpp/example/decoder/weights_random.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {

inline decoder::ModelConfig SmallConfig() {
  decoder::ModelConfig config;
  config.vocabulary = 97;
  config.hidden = 48;
  config.intermediate = 80;
  config.layers = 3;
  config.query_heads = 6;
  config.kv_heads = 2;
  config.head_size = 16;
  config.rope_theta = 10000;
  config.rms_epsilon = 1e-5;
  config.tied_head = false;
  return config;
}

// Token numbers of a seed; words come again, as they do in text.
inline std::vector<int32_t> SmallPrompt(uint64_t seed, uint32_t tokens) {
  std::vector<int32_t> prompt;
  for (uint32_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<int32_t>(SplitMix64(seed, i) % SmallConfig().vocabulary));
  }
  return prompt;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_SMALL_MODEL_H_
