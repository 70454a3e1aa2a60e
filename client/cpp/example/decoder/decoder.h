// The engine: one sequence, run token by token or many at once over the cache in lent memory. It
// knows nothing of policies; an Evictor shrinks its cache between two calls of Run.
#ifndef KVTRIAGE_DECODER_DECODER_H_
#define KVTRIAGE_DECODER_DECODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/lent_inputs.h"
#include "client/cpp/example/decoder/lent_kv.h"
#include "client/cpp/example/decoder/transformer.h"
#include "kvtriage/session.h"

namespace kvtriage::decoder {

// The token with the largest logit, the first of equals.
int32_t Greedy(std::span<const float> logits);

class Decoder {
 public:
  // Room for `capacity` tokens. `weights` outlive it.
  static absl::StatusOr<Decoder> Create(const Weights& weights, uint32_t capacity,
                                        InputsWanted wanted);

  // Lends the cache and the inputs, once. Without it everything works but what needs the service.
  absl::Status Lend(client::Session& session);

  // Computes `tokens` behind those it has, each at the next position: a prompt, a part of one, or a
  // single step. The logits behind the last. INVALID_ARGUMENT for a token outside the vocabulary,
  // RESOURCE_EXHAUSTED when the capacity is used up; nothing has changed then.
  absl::StatusOr<std::vector<float>> Run(std::span<const int32_t> tokens);

  // Drops all rows and computes them again from the tokens, none evicted: what an engine does when
  // its cache is damaged.
  void Recompute();
  // Drops all tokens and their rows.
  void Restart();
  // Drops the newest `n` tokens, none of whose rows has been evicted: drafts that were rejected.
  void DropNewest(uint32_t n);

  // INVALID_ARGUMENT for a token outside the vocabulary.
  absl::Status CheckTokens(std::span<const int32_t> tokens) const;

  // For who computes rows itself (a Blender), layer by layer: keeps the queries of the last `n` of
  // `rows`, which are tokens `first`, `first` + 1, ...; and at the end takes over the tokens, whose
  // rows are then in every layer of kv(), with queries from token `queries_from` on.
  void KeepQueries(uint32_t layer, uint64_t first, const Transformer::Projected& rows, uint32_t n);
  void Adopt(std::span<const int32_t> tokens, uint64_t queries_from);

  const Transformer& transformer() const { return transformer_; }
  LentKv& kv() { return kv_; }
  const LentKv& kv() const { return kv_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  static constexpr uint64_t kSequenceId = 1;  // the only one
  // For requests: the cache, its one sequence as it is now, and the inputs of policies.
  client::Cache cache() const { return lent_.caches.at(0); }
  client::Sequence sequence() const;
  client::ScoreInputs inputs() const;
  // The same sequence with the queries of tokens `first` and newer.
  client::Sequence sequence(uint64_t first) const;
  // The service's count of changes, to be sent with the next call.
  void set_kv_revision(uint32_t revision) { kv_revision_ = revision; }
  // Rows have been evicted. From now on calls name only queries that are newer: it is certain of
  // those alone that their own rows are the last ones of every head.
  void ForgetQueries() { queries_from_ = tokens_.size(); }

 private:
  Decoder(const Weights& weights, LentKv kv, LentInputs inputs)
      : transformer_(weights), kv_(std::move(kv)), inputs_(std::move(inputs)) {}
  std::vector<float> Compute(std::span<const int32_t> tokens, uint64_t first);

  Transformer transformer_;
  LentKv kv_;
  LentInputs inputs_;
  client::Registered lent_;
  std::vector<int32_t> tokens_;
  uint64_t queries_from_ = 0;  // the first token whose queries calls may name
  uint32_t generation_ = 0, kv_revision_ = 0;
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_DECODER_H_
