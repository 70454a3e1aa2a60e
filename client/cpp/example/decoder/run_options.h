// The flags of kvtriage-decoder.
#ifndef KVTRIAGE_DECODER_RUN_OPTIONS_H_
#define KVTRIAGE_DECODER_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/weights.h"

namespace kvtriage::decoder {

struct RunOptions {
  bool help = false;
  std::optional<std::string> weights;  // a file; none: random ones
  uint64_t seed = 1;                   // of random weights and random tokens
  std::vector<int32_t> tokens;         // empty: `prompt_tokens` random ones
  uint32_t prompt_tokens = 300;
  uint32_t steps = 16;
  std::string policy = "snapkv";  // empty: no service at all
  double keep = 0.2;
  uint32_t budget = 0;           // rows; not 0: evict while decoding, instead of once by `keep`
  uint32_t every = 64;           // tokens from one look at the budget to the next
  std::vector<uint32_t> chunks;  // lengths of the reused chunks: blend. Empty: compress
  double ratio = 0.15;
  std::optional<std::string> endpoint;
};

// INVALID_ARGUMENT naming the flag.
absl::StatusOr<RunOptions> ParseRunOptions(std::span<const std::string> arguments);
std::string RunHelp();

// The weights that the options name: a .gguf file, a safetensors file, or random ones of a small
// model.
absl::StatusOr<Weights> LoadWeights(const RunOptions& options);
// The prompt: tokens as given, or random ones.
std::vector<int32_t> PromptOf(const RunOptions& options, const ModelConfig& config);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_RUN_OPTIONS_H_
