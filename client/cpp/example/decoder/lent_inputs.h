// What a policy reads beside the cache, in lent memory: the queries of every token so far, and W_O
// for the policies that weigh values by it.
#ifndef KVTRIAGE_DECODER_LENT_INPUTS_H_
#define KVTRIAGE_DECODER_LENT_INPUTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/transformer.h"
#include "kvtriage/compress.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::decoder {

// What has to be kept for a policy while the prompt is computed.
struct InputsWanted {
  client::QueryStage queries = client::QueryStage::kAfterRope;
  uint32_t window = 64;  // newest queries that a call names; 0: all. Measures are taken on them
  bool output_projection = false;
};
// For a named policy: H2O, VATP and Expected Attention read the queries of all tokens, the last one
// from before RoPE; CriticalKV reads W_O.
InputsWanted WantedBy(std::string_view policy);

class LentInputs {
 public:
  // For `capacity` tokens of this model. Copies W_O when it is wanted.
  static absl::StatusOr<LentInputs> Create(const Weights& weights, uint32_t capacity,
                                           InputsWanted wanted);

  // To register, in the order in which Registered gives them back to `From`.
  std::vector<client::RegionSpec> Lend() const;

  // How many of the newest `available` queries a call names.
  uint32_t WindowOf(uint64_t available) const;

  // Keeps the queries of the last `n` of `rows`: a layer's tokens `first`, `first` + 1, ...
  void Keep(uint32_t layer, uint64_t first, const Transformer::Projected& rows, uint32_t n);

  // The inputs of a call, over the regions that Lend's became. The row axis is the token number:
  // the newest n of `tokens` are rows [tokens - n, tokens).
  client::ScoreInputs From(std::span<const client::Region> regions, uint64_t tokens) const;

 private:
  LentInputs(const ModelConfig& config, uint32_t capacity, InputsWanted wanted,
             client::HostMemory queries)
      : config_(config), capacity_(capacity), wanted_(wanted), queries_(std::move(queries)) {}

  ModelConfig config_;
  uint32_t capacity_;
  InputsWanted wanted_;
  client::HostMemory queries_;  // [layers][capacity][query_heads][head_size]
  std::optional<client::HostMemory> output_projection_;  // [layers][hidden][query_heads][head_size]
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_LENT_INPUTS_H_
