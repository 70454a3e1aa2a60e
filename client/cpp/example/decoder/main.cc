// kvtriage-decoder: a transformer whose KV cache a kvtriaged shrinks or blends while it decodes.
//   kvtriage-decoder --weights model.gguf --tokens @prompt.txt --policy snapkv --keep 0.2
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/cli/connect.h"
#include "client/cpp/example/decoder/blender.h"
#include "client/cpp/example/decoder/decode_evictor.h"
#include "client/cpp/example/decoder/evictor.h"
#include "client/cpp/example/decoder/run_options.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

// The prompt is a string of tokens; a step needs room for one more each.
uint32_t CapacityOf(const RunOptions& options, const std::vector<int32_t>& prompt) {
  return static_cast<uint32_t>(prompt.size()) + options.steps;
}

absl::StatusOr<std::vector<int32_t>> Generate(Decoder& decoder, std::vector<float> logits,
                                              uint32_t steps) {
  std::vector<int32_t> tokens;
  for (uint32_t step = 0; step < steps; ++step) {
    tokens.push_back(Greedy(logits));
    if (step + 1 == steps) break;
    KVTRIAGE_ASSIGN_OR_RETURN(logits, decoder.Run(std::span(tokens).last(1)));
  }
  return tokens;
}

absl::StatusOr<std::vector<int32_t>> WithoutService(const Weights& weights,
                                                    const RunOptions& options,
                                                    const std::vector<int32_t>& prompt) {
  KVTRIAGE_ASSIGN_OR_RETURN(Decoder decoder,
                            Decoder::Create(weights, CapacityOf(options, prompt), {}));
  KVTRIAGE_ASSIGN_OR_RETURN(std::vector<float> logits, decoder.Run(prompt));
  return Generate(decoder, std::move(logits), options.steps);
}

void PrintTokens(const char* title, const std::vector<int32_t>& tokens) {
  std::cout << title << absl::StrJoin(tokens, " ") << std::endl;
}

// What is left of each layer and what that did to the attention of the newest queries.
void PrintKept(const Eviction& eviction, const Decoder& decoder) {
  const ModelConfig& config = decoder.transformer().config();
  const double rows = static_cast<double>(decoder.tokens().size()) * config.kv_heads;
  std::printf("layer  kept share  retained mass  output error\n");
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    double kept = 0;
    for (uint32_t head = 0; head < config.kv_heads; ++head) kept += decoder.kv().rows(layer, head);
    std::printf("%5u  %10.3f", layer, kept / rows);
    if (eviction.result.has_value()) {
      for (const client::Quality& quality : eviction.result->quality) {
        if (quality.layer != layer) continue;
        std::printf("  %13.4f  %12.4f", quality.mass_mean.value_or(0), quality.error.value_or(0));
      }
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

absl::Status Compress(client::Session& session, const Weights& weights, const RunOptions& options,
                      const std::vector<int32_t>& prompt) {
  KVTRIAGE_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(weights, CapacityOf(options, prompt),
                                                             WantedBy(options.policy)));
  KVTRIAGE_RETURN_IF_ERROR(decoder.Lend(session));
  KVTRIAGE_ASSIGN_OR_RETURN(std::vector<float> logits, decoder.Run(prompt));
  const Eviction eviction = Evictor(session, decoder, std::cerr)
                                .Compress(client::NamedPolicy(options.policy, options.keep),
                                          {.retained_mass = true, .output_error = true});
  PrintKept(eviction, decoder);
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                            Generate(decoder, std::move(logits), options.steps));
  PrintTokens((options.policy + ": ").c_str(), tokens);
  return absl::OkStatus();
}

// The service is asked once behind the prompt and then every few tokens.
absl::Status EvictWhileDecoding(client::Session& session, const Weights& weights,
                                const RunOptions& options, const std::vector<int32_t>& prompt) {
  KVTRIAGE_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(weights, CapacityOf(options, prompt),
                                                             WantedBy(options.policy)));
  KVTRIAGE_RETURN_IF_ERROR(decoder.Lend(session));
  DecodeEvictor evictor(session, decoder, client::NamedPolicyTokens(options.policy, options.budget),
                        std::cerr);
  KVTRIAGE_ASSIGN_OR_RETURN(std::vector<float> logits, decoder.Run(prompt));
  evictor.Observe();
  std::vector<int32_t> tokens;
  for (uint32_t step = 0; step < options.steps; ++step) {
    tokens.push_back(Greedy(logits));
    KVTRIAGE_ASSIGN_OR_RETURN(logits, decoder.Run(std::span(tokens).last(1)));
    if (evictor.waiting() >= options.every) evictor.Observe();
  }
  std::printf("%zu tokens, %u rows\n", decoder.tokens().size(), decoder.kv().longest());
  PrintTokens((options.policy + ": ").c_str(), tokens);
  return absl::OkStatus();
}

absl::Status Blend(client::Session& session, const Weights& weights, const RunOptions& options,
                   const std::vector<int32_t>& prompt) {
  std::vector<Decoder> chunks;
  std::span<const int32_t> rest = prompt;
  for (const uint32_t length : options.chunks) {
    if (length == 0 || length > rest.size()) {
      return absl::InvalidArgumentError("--chunks: do not fit the prompt");
    }
    KVTRIAGE_ASSIGN_OR_RETURN(Decoder chunk, Decoder::Create(weights, length, {}));
    KVTRIAGE_RETURN_IF_ERROR(chunk.Run(rest.first(length)).status());
    chunks.push_back(std::move(chunk));
    rest = rest.subspan(length);
  }
  std::vector<const Decoder*> reused;
  reused.reserve(chunks.size());
  for (const Decoder& chunk : chunks) reused.push_back(&chunk);
  KVTRIAGE_ASSIGN_OR_RETURN(Decoder decoder,
                            Decoder::Create(weights, CapacityOf(options, prompt), {}));
  KVTRIAGE_RETURN_IF_ERROR(decoder.Lend(session));
  KVTRIAGE_ASSIGN_OR_RETURN(Blender blender, Blender::Create(session, decoder, std::cerr));
  KVTRIAGE_ASSIGN_OR_RETURN(Blended blended, blender.Blend(reused, rest, {.ratio = options.ratio}));
  if (blended.chosen.has_value()) {
    std::printf("%zu of %zu rows computed again, which carry %.3f of the divergence\n",
                blended.chosen->rows.size(), prompt.size(), blended.chosen->divergence_share);
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                            Generate(decoder, std::move(blended.logits), options.steps));
  PrintTokens("blend: ", tokens);
  return absl::OkStatus();
}

absl::Status Run(const RunOptions& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const Weights weights, LoadWeights(options));
  const std::vector<int32_t> prompt = PromptOf(options, weights.config);
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                            WithoutService(weights, options, prompt));
  PrintTokens("all rows: ", tokens);
  if (options.policy.empty() && options.chunks.empty()) return absl::OkStatus();
  KVTRIAGE_ASSIGN_OR_RETURN(const cli::Target target, cli::FindService(options.endpoint));
  client::ConnectOptions connect;
  connect.endpoint = target.endpoint;
  connect.client = "kvtriage-decoder/" KVTRIAGE_VERSION;
  KVTRIAGE_ASSIGN_OR_RETURN(const std::unique_ptr<client::Session> session,
                            client::Session::Connect(connect));
  if (!options.chunks.empty()) return Blend(*session, weights, options, prompt);
  return options.budget > 0 ? EvictWhileDecoding(*session, weights, options, prompt)
                            : Compress(*session, weights, options, prompt);
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<RunOptions> options = ParseRunOptions(arguments);
  if (!options.ok()) {
    std::cerr << "kvtriage-decoder: " << options.status().message() << "\n";
    return 2;
  }
  if (options->help) {
    std::cout << "kvtriage-decoder: decodes with a KV cache that kvtriaged shrinks or blends\n"
              << RunHelp();
    return 0;
  }
  if (const absl::Status status = Run(*options); !status.ok()) {
    std::cerr << "kvtriage-decoder: " << status.message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace kvtriage::decoder

int main(int argc, char** argv) { return kvtriage::decoder::Main({argv + 1, argv + argc}); }
