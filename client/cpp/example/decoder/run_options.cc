#include "client/cpp/example/decoder/run_options.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/flags.h"
#include "client/cpp/example/decoder/weights_gguf.h"
#include "client/cpp/example/decoder/weights_random.h"
#include "client/cpp/example/decoder/weights_safetensors.h"
#include "kernels/core/splitmix64.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

constexpr uint32_t kMostTokens = 1 << 17;

constexpr cli::FlagSpec kFlags[] = {
    {"--weights", "FILE", "model in GGUF or safetensors; else seeded random weights"},
    {"--seed", "N", "of random weights and tokens (1)"},
    {"--tokens", "LIST", "token numbers of the prompt, 1,2,3; or @FILE with them"},
    {"--prompt-tokens", "N", "length of a random prompt (300)"},
    {"--steps", "N", "tokens to generate (16)"},
    {"--policy", "NAME", "compress behind the prompt with this policy (snapkv); none: do not"},
    {"--keep", "RATIO", "share of the rows to keep (0.2)"},
    {"--budget", "ROWS", "instead of --keep: cut back to so many rows while decoding (h2o, vatp)"},
    {"--every", "N", "with --budget: tokens between two calls of the service (64)"},
    {"--chunks", "LIST", "lengths of reused chunks at the start of the prompt: blend them instead"},
    {"--ratio", "RATIO", "share of the reused rows to compute again in a blend (0.15)"},
    {"--endpoint", "PATH", "socket of a running service; else the default one, or a private one"},
    {"--help", "", "this text"},
};

template <typename T>
absl::StatusOr<std::vector<T>> ParseNumbers(const char* flag, std::string_view text) {
  std::vector<T> numbers;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), absl::ByAnyChar(", \n\t\r"),
                      absl::SkipEmpty())) {
    T number = 0;
    if (!absl::SimpleAtoi(word, &number) || numbers.size() >= kMostTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": ", word, " is not a number, or there are too many"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::Status ParseCount(const cli::Flags& flags, const char* flag, auto* count) {
  const auto text = flags.Get(flag);
  if (text.has_value() && !absl::SimpleAtoi(*text, count)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", *text, " is not a whole number"));
  }
  return absl::OkStatus();
}

absl::Status ParseShare(const cli::Flags& flags, const char* flag, double* share) {
  const auto text = flags.Get(flag);
  if (!text.has_value()) return absl::OkStatus();
  if (!absl::SimpleAtod(*text, share) || !(*share >= 0 && *share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", *text, " is not between 0 and 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ParseTokens(const std::string& text) {
  if (!text.starts_with('@')) return ParseNumbers<int32_t>("--tokens", text);
  std::ifstream in(text.substr(1));
  if (!in) return absl::InvalidArgumentError(absl::StrCat("--tokens: can't read ", text.substr(1)));
  return ParseNumbers<int32_t>("--tokens", std::string{std::istreambuf_iterator<char>(in), {}});
}

}  // namespace

absl::StatusOr<RunOptions> ParseRunOptions(std::span<const std::string> arguments) {
  KVTRIAGE_ASSIGN_OR_RETURN(const cli::Flags flags, cli::Flags::Parse(kFlags, arguments));
  RunOptions options;
  options.help = flags.Has("--help");
  options.weights = flags.Get("--weights");
  options.endpoint = flags.Get("--endpoint");
  options.policy = flags.Get("--policy").value_or(options.policy);
  if (options.policy == "none") options.policy.clear();
  KVTRIAGE_RETURN_IF_ERROR(ParseCount(flags, "--seed", &options.seed));
  KVTRIAGE_RETURN_IF_ERROR(ParseCount(flags, "--prompt-tokens", &options.prompt_tokens));
  KVTRIAGE_RETURN_IF_ERROR(ParseCount(flags, "--steps", &options.steps));
  KVTRIAGE_RETURN_IF_ERROR(ParseCount(flags, "--budget", &options.budget));
  KVTRIAGE_RETURN_IF_ERROR(ParseCount(flags, "--every", &options.every));
  KVTRIAGE_RETURN_IF_ERROR(ParseShare(flags, "--keep", &options.keep));
  KVTRIAGE_RETURN_IF_ERROR(ParseShare(flags, "--ratio", &options.ratio));
  if (const auto tokens = flags.Get("--tokens")) {
    KVTRIAGE_ASSIGN_OR_RETURN(options.tokens, ParseTokens(*tokens));
  }
  if (const auto chunks = flags.Get("--chunks")) {
    KVTRIAGE_ASSIGN_OR_RETURN(options.chunks, ParseNumbers<uint32_t>("--chunks", *chunks));
  }
  if (options.prompt_tokens == 0 || options.prompt_tokens > kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt-tokens: must be 1 to ", kMostTokens));
  }
  if (options.steps > kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("--steps: must be at most ", kMostTokens));
  }
  if (options.every == 0) return absl::InvalidArgumentError("--every: must be at least 1");
  return options;
}

std::string RunHelp() { return cli::FlagHelp(kFlags); }

absl::StatusOr<Weights> LoadWeights(const RunOptions& options) {
  if (options.weights.has_value()) {
    return options.weights->ends_with(".gguf") ? LoadGguf(*options.weights)
                                               : LoadSafetensors(*options.weights);
  }
  ModelConfig small;
  small.vocabulary = 1000;
  small.hidden = 128;
  small.intermediate = 256;
  small.layers = 4;
  small.query_heads = 8;
  small.kv_heads = 2;
  small.head_size = 32;
  small.tied_head = true;
  return RandomWeights(small, options.seed);
}

std::vector<int32_t> PromptOf(const RunOptions& options, const ModelConfig& config) {
  if (!options.tokens.empty()) return options.tokens;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < options.prompt_tokens; ++i) {
    tokens.push_back(static_cast<int32_t>(SplitMix64(options.seed, i) % config.vocabulary));
  }
  return tokens;
}

}  // namespace kvtriage::decoder
