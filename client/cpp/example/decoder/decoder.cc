#include "client/cpp/example/decoder/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {

int32_t Greedy(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

absl::StatusOr<Decoder> Decoder::Create(const Weights& weights, uint32_t capacity,
                                        InputsWanted wanted) {
  KVTRIAGE_ASSIGN_OR_RETURN(LentKv kv, LentKv::Create(weights.config, capacity));
  KVTRIAGE_ASSIGN_OR_RETURN(LentInputs inputs, LentInputs::Create(weights, capacity, wanted));
  return Decoder(weights, std::move(kv), std::move(inputs));
}

absl::Status Decoder::Lend(client::Session& session) {
  client::Registration registration;
  registration.regions = inputs_.Lend();
  registration.regions.insert(registration.regions.begin(), kv_.memory().Lend());
  registration.caches = {kv_.Describe(client::Region::OfThisCall(0))};
  KVTRIAGE_ASSIGN_OR_RETURN(lent_, session.Register(registration));
  return absl::OkStatus();
}

absl::Status Decoder::CheckTokens(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= transformer_.config().vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("tokens: ", token, " is not one of the ",
                                                     transformer_.config().vocabulary,
                                                     " of the vocabulary"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Decoder::Run(std::span<const int32_t> tokens) {
  if (tokens.empty()) return absl::InvalidArgumentError("tokens: none");
  KVTRIAGE_RETURN_IF_ERROR(CheckTokens(tokens));
  if (tokens.size() > kv_.capacity() - tokens_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("capacity: ", tokens_.size() + tokens.size(),
                                                     " tokens, room for ", kv_.capacity()));
  }
  const uint64_t first = tokens_.size();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return Compute(tokens, first);
}

std::vector<float> Decoder::Compute(std::span<const int32_t> tokens, uint64_t first) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  std::vector<int32_t> positions(rows);  // of the text, however many rows have been evicted
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  std::vector<float> x = transformer_.Embed(tokens);
  for (uint32_t layer = 0; layer < transformer_.config().layers; ++layer) {
    const Transformer::Projected projected = transformer_.Project(layer, x, positions);
    kv_.Write(layer, projected.keys, projected.values);
    KeepQueries(layer, first, projected, rows);
    const std::vector<float> attended = Attend(projected.queries, transformer_.config().query_heads,
                                               kv_.Rows(layer), kv_.Limits(layer, rows));
    transformer_.Finish(layer, attended, x);
  }
  kv_.Grow(rows);
  return transformer_.Logits(std::span(x).last(transformer_.config().hidden));
}

void Decoder::Recompute() {
  const std::vector<int32_t> tokens = std::exchange(tokens_, {});
  Restart();
  tokens_ = tokens;
  if (!tokens_.empty()) Compute(tokens_, 0);
}

void Decoder::Restart() {
  tokens_.clear();
  kv_.Clear();
  queries_from_ = 0;
  ++generation_;  // the service counts these rows anew
  kv_revision_ = 0;
}

void Decoder::DropNewest(uint32_t n) {
  tokens_.resize(tokens_.size() - n);
  const ModelConfig& config = transformer_.config();
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    for (uint32_t head = 0; head < config.kv_heads; ++head) {
      kv_.Shrink(layer, head, kv_.rows(layer, head) - n);
    }
  }
}

void Decoder::KeepQueries(uint32_t layer, uint64_t first, const Transformer::Projected& rows,
                          uint32_t n) {
  inputs_.Keep(layer, first, rows, n);
}

void Decoder::Adopt(std::span<const int32_t> tokens, uint64_t queries_from) {
  tokens_.assign(tokens.begin(), tokens.end());
  kv_.Grow(static_cast<uint32_t>(tokens.size()));
  queries_from_ = queries_from;
}

client::Sequence Decoder::sequence() const {
  // Queries of the newest rows, of those that are known and have rows.
  return sequence(tokens_.size() - inputs_.WindowOf(std::min<uint64_t>(
                                       kv_.longest(), tokens_.size() - queries_from_)));
}

client::Sequence Decoder::sequence(uint64_t first) const {
  client::Sequence sequence;
  sequence.sequence_id = kSequenceId;
  sequence.generation = generation_;
  sequence.kv_revision = kv_revision_;
  sequence.logical_len = tokens_.size();
  sequence.physical_len = kv_.longest();
  sequence.table = {0};
  sequence.sharing = client::Sharing::kAllPrivate;
  sequence.rows_begin = static_cast<uint32_t>(first);
  sequence.rows_count = static_cast<uint32_t>(tokens_.size() - first);
  if (kv_.longest() == tokens_.size()) sequence.positions = uint64_t{0};
  return sequence;
}

client::ScoreInputs Decoder::inputs() const {
  return inputs_.From(std::span(lent_.regions).subspan(1), tokens_.size());
}

}  // namespace kvtriage::decoder
