#include "client/cpp/example/decoder/blender.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/example/decoder/kept_rows.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

// Rows `which` of [rows][width].
std::vector<float> Gathered(std::span<const float> from, std::span<const int32_t> which,
                            size_t width) {
  std::vector<float> rows;
  rows.reserve(which.size() * width);
  for (const int32_t row : which) {
    const auto begin = from.begin() + static_cast<int64_t>(row) * static_cast<int64_t>(width);
    rows.insert(rows.end(), begin, begin + static_cast<int64_t>(width));
  }
  return rows;
}

// A row sees as many rows in each head.
std::vector<int32_t> ForEachHead(std::span<const int32_t> limits, uint32_t heads) {
  std::vector<int32_t> all;
  for (const int32_t limit : limits) all.insert(all.end(), heads, limit);
  return all;
}

std::vector<int32_t> CountedFrom(int32_t first, uint32_t count) {
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

absl::StatusOr<Blender> Blender::Create(client::Session& session, Decoder& decoder,
                                        std::ostream& log) {
  const ModelConfig& config = decoder.transformer().config();
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory fresh,
                            LentFloats({2, decoder.kv().capacity(), config.kv_width()}));
  Blender blender(session, decoder, log, std::move(fresh));
  KVTRIAGE_ASSIGN_OR_RETURN(const client::Registered lent,
                            session.Register({{blender.fresh_.Lend(client::Access::kRead)}, {}}));
  blender.fresh_region_ = lent.regions.at(0);
  return blender;
}

absl::StatusOr<Blended> Blender::Blend(std::span<const Decoder* const> chunks,
                                       std::span<const int32_t> suffix,
                                       const BlendOptions& options) {
  KVTRIAGE_RETURN_IF_ERROR(CheckArguments(chunks, suffix, options));
  const Rows rows = Glue(chunks, suffix);
  absl::Status status = Rerotate(rows);
  if (status.ok()) {
    absl::StatusOr<Blended> blended = Recompute(rows, options);
    if (blended.ok()) return blended;
    status = blended.status();
  }
  log_ << "blend: " << status << "\nprefilling all " << rows.count() << " tokens instead\n";
  decoder_.Restart();
  KVTRIAGE_ASSIGN_OR_RETURN(std::vector<float> logits, decoder_.Run(rows.tokens));
  return Blended{std::move(logits), std::nullopt, status};
}

absl::Status Blender::CheckArguments(std::span<const Decoder* const> chunks,
                                     std::span<const int32_t> suffix,
                                     const BlendOptions& options) const {
  const ModelConfig& config = decoder_.transformer().config();
  uint64_t count = suffix.size();
  for (const Decoder* chunk : chunks) {
    if (&chunk->transformer().weights() != &decoder_.transformer().weights() ||
        chunk->kv().longest() != chunk->tokens().size()) {
      return absl::InvalidArgumentError("chunks: of another model, or not whole");
    }
    count += chunk->tokens().size();
  }
  if (!decoder_.tokens().empty()) return absl::InvalidArgumentError("decoder: has tokens already");
  if (count == 0) return absl::InvalidArgumentError("chunks: no tokens");
  if (count > decoder_.kv().capacity()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("capacity: ", count, " tokens, room for ", decoder_.kv().capacity()));
  }
  if (options.check_layer >= config.layers) {
    return absl::InvalidArgumentError(absl::StrCat("check_layer: got ", options.check_layer,
                                                   ", the model has ", config.layers, " layers"));
  }
  return decoder_.CheckTokens(suffix);
}

// Copies the chunks' rows side by side, keys still turned for where they stood alone.
Blender::Rows Blender::Glue(std::span<const Decoder* const> chunks,
                            std::span<const int32_t> suffix) {
  const ModelConfig& config = decoder_.transformer().config();
  Rows rows;
  for (const Decoder* const chunk : chunks) {
    const auto count = static_cast<uint32_t>(chunk->tokens().size());
    const uint64_t floats = uint64_t{count} * config.head_size;
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
      for (uint32_t head = 0; head < config.kv_heads; ++head) {
        std::copy_n(chunk->kv().Key(layer, head, 0), floats,
                    decoder_.kv().Key(layer, head, rows.reused));
        std::copy_n(chunk->kv().Value(layer, head, 0), floats,
                    decoder_.kv().Value(layer, head, rows.reused));
      }
    }
    for (uint32_t row = 0; row < count; ++row) {
      rows.old_positions.push_back(static_cast<int32_t>(row));
    }
    rows.tokens.insert(rows.tokens.end(), chunk->tokens().begin(), chunk->tokens().end());
    rows.reused += count;
  }
  rows.tokens.insert(rows.tokens.end(), suffix.begin(), suffix.end());
  return rows;
}

absl::Status Blender::Rerotate(const Rows& rows) {
  if (rows.reused == 0) return absl::OkStatus();
  client::RerotateRequest request;
  request.cache = decoder_.cache();
  request.sequence = SequenceOf(rows.reused);
  request.sequence.positions = rows.old_positions;
  request.rows = rows.reused;
  request.new_positions = uint64_t{0};
  request.angles = client::AngleMode::kExact;
  request.act = client::InPlace{};
  return Settle("rerotate", session_.Rerotate(request));
}

absl::StatusOr<Blended> Blender::Recompute(const Rows& rows, const BlendOptions& options) {
  const Transformer& transformer = decoder_.transformer();
  const ModelConfig& config = transformer.config();
  std::vector<int32_t> positions = CountedFrom(0, rows.count());
  std::vector<float> x = transformer.Embed(rows.tokens);
  Blended blended;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    Transformer::Projected projected = transformer.Project(layer, x, positions);
    WriteFresh(projected);
    decoder_.KeepQueries(layer, rows.reused, projected, rows.count() - rows.reused);
    if (layer == options.check_layer) {
      KVTRIAGE_ASSIGN_OR_RETURN(blended.chosen, Select(rows, options));
    }
    // Up to the check layer all rows are fresh; behind it only the chosen ones.
    const bool all = layer <= options.check_layer;
    KVTRIAGE_RETURN_IF_ERROR(Fuse(layer, rows, all ? nullptr : &blended.chosen->rows));
    std::vector<int32_t> limits = CountedFrom(1, rows.count());
    if (layer >= options.check_layer) limits = blended.chosen->limits;
    if (layer == options.check_layer) {
      positions = blended.chosen->rows;
      x = Gathered(x, positions, config.hidden);
      projected.queries = Gathered(projected.queries, positions, config.query_width());
    }
    transformer.Finish(layer,
                       Attend(projected.queries, config.query_heads, decoder_.kv().Rows(layer),
                              ForEachHead(limits, config.kv_heads)),
                       x);
  }
  decoder_.Adopt(rows.tokens, rows.reused);
  blended.logits = transformer.Logits(std::span(x).last(config.hidden));
  return blended;
}

absl::StatusOr<client::RecomputeResult> Blender::Select(const Rows& rows,
                                                        const BlendOptions& options) {
  client::RecomputeRequest request;
  request.fresh = client::DenseRows{Fresh(true, rows.count())};
  request.cached = client::PagedRows{decoder_.cache(), options.check_layer, {0}};
  request.rows = rows.count();
  request.suffix = rows.count() - rows.reused;
  request.metric = client::DivergenceMetric::kVL2;  // no position can enter it
  request.ratio = options.ratio;
  return session_.SelectRecompute(request);
}

absl::Status Blender::Fuse(uint32_t layer, const Rows& rows, const std::vector<int32_t>* which) {
  client::FuseRequest request;
  request.cache = decoder_.cache();
  request.layers = {static_cast<int32_t>(layer)};
  request.sequence = SequenceOf(rows.count());
  if (which != nullptr) request.rows = *which;
  const auto count = which != nullptr ? static_cast<uint32_t>(which->size()) : rows.count();
  request.keys = Fresh(false, count);
  request.values = Fresh(true, count);
  return Settle("fuse", session_.Fuse(request));
}

void Blender::WriteFresh(const Transformer::Projected& projected) {
  auto* const keys = reinterpret_cast<float*>(fresh_.data());
  std::copy(projected.keys.begin(), projected.keys.end(), keys);
  std::copy(projected.values.begin(), projected.values.end(),
            keys + fresh_.size() / sizeof(float) / 2);
}

client::TensorSpec Blender::Fresh(bool values, uint32_t rows) const {
  const ModelConfig& config = decoder_.transformer().config();
  return client::DenseTensor(fresh_region_, values ? fresh_.size() / 2 : 0, client::DType::kF32, 1,
                             rows, config.kv_heads, config.head_size);
}

client::Sequence Blender::SequenceOf(uint32_t rows) const {
  client::Sequence sequence = decoder_.sequence();
  sequence.logical_len = sequence.physical_len = rows;
  sequence.rows_begin = sequence.rows_count = 0;
  sequence.positions = uint64_t{0};
  return sequence;
}

absl::Status Blender::Settle(const char* what, const client::RowsOutcome& outcome) {
  if (!outcome.status.ok()) log_ << what << ": " << outcome.status << "\n";
  if (outcome.outcome == client::Outcome::kApplied) {  // also when the answer was lost
    decoder_.set_kv_revision(outcome.kv_revision);
    return absl::OkStatus();
  }
  WaitQuiet(session_, outcome.quarantine);
  return outcome.status;
}

}  // namespace kvtriage::decoder
