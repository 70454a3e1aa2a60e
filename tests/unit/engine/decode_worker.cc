#include "tests/unit/engine/decode_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

CacheShape ShapeOf(const DecodeShape& shape) {
  CacheShape cache;
  const uint32_t blocks = (shape.capacity + shape.block_slots - 1) / shape.block_slots;
  cache.blocks = blocks * shape.sequences;
  cache.block_slots = shape.block_slots;
  cache.heads = shape.heads;
  cache.group = shape.group;
  cache.dk = shape.dk;
  cache.dv = shape.dv;
  if (!shape.before_rope) return cache;
  Rope rope;
  rope.pairing = RopePairing::kHalf;
  rope.rotary_dim = shape.dk;
  for (uint32_t j = 0; j < shape.dk / 2; ++j) {
    rope.speeds.push_back(std::pow(100.0, -2.0 * j / shape.dk));
  }
  cache.ropes = {rope};
  cache.rope_of.assign(shape.heads.size(), 1);
  return cache;
}

uint32_t MostHeads(const DecodeShape& shape) {
  return shape.group * *std::max_element(shape.heads.begin(), shape.heads.end());
}

uint64_t QueryBytes(const DecodeShape& shape) {
  return shape.heads.size() * shape.query_rows * MostHeads(shape) * shape.dk * sizeof(float);
}

}  // namespace

DecodeWorker::DecodeWorker(EngineWorld& world, const DecodeShape& shape, uint64_t seed)
    : world_(world),
      shape_(shape),
      seed_(seed),
      session_(world.Attach()),
      cache_(std::make_unique<WorkerCache>(session_, ShapeOf(shape), seed, QueryBytes(shape))) {
  const auto blocks = static_cast<int32_t>(cache_->shape().blocks / shape.sequences);
  for (uint32_t s = 0; s < shape.sequences; ++s) {
    std::vector<int32_t> table;
    // Blocks of the sequences alternate.
    for (int32_t b = 0; b < blocks; ++b) {
      table.push_back(b * static_cast<int32_t>(shape.sequences) + static_cast<int32_t>(s));
    }
    const uint64_t id = s + 1;
    sequences_[id] = cache_->Sequence(id, 0, table);
    like_[id] = id;
    for (const uint32_t heads : shape.heads) {
      tokens_[id].push_back(std::vector<std::vector<int32_t>>(heads));
    }
  }
}

float DecodeWorker::Value(uint64_t id, uint32_t layer, uint32_t what, uint32_t head, int32_t token,
                          uint32_t elem) const {
  uint64_t at = like_.at(id);
  for (const uint64_t part : {uint64_t{layer}, uint64_t{what}, uint64_t{head},
                              static_cast<uint64_t>(token), uint64_t{elem}}) {
    at = at * 8191 + part;
  }
  // Multiples of 1/64 in [-1, 1).
  return static_cast<float>(static_cast<int32_t>(SplitMix64(seed_, at) >> 57) - 64) / 64.0f;
}

std::vector<float> DecodeWorker::Key(uint64_t id, uint32_t layer, uint32_t head,
                                     int32_t token) const {
  std::vector<float> key;
  for (uint32_t e = 0; e < shape_.dk; ++e) key.push_back(Value(id, layer, 0, head, token, e));
  if (rope() == nullptr) return key;
  std::vector<float> cosines(shape_.dk / 2), sines(shape_.dk / 2);
  TurnBetween(*rope(), AngleMode::kExact, AtPosition(0), AtPosition(token), cosines, sines);
  TurnRow(*rope(), cosines, sines, key.data());
  return key;
}

std::vector<float> DecodeWorker::ValueOf(uint64_t id, uint32_t layer, uint32_t head,
                                         int32_t token) const {
  std::vector<float> value;
  for (uint32_t e = 0; e < shape_.dv; ++e) value.push_back(Value(id, layer, 1, head, token, e));
  return value;
}

std::vector<float> DecodeWorker::Query(uint64_t id, uint32_t layer, int32_t token) const {
  std::vector<float> query;
  for (uint32_t h = 0; h < shape_.heads[layer] * shape_.group; ++h) {
    // Some tokens look harder than others.
    const float sharp = token % 5 == 0 ? 6.0f : 2.0f;
    for (uint32_t e = 0; e < shape_.dk; ++e) {
      query.push_back(sharp * Value(id, layer, 2, h, token, e));
    }
  }
  return query;
}

void DecodeWorker::WriteRow(uint64_t id, uint32_t layer, uint32_t head, uint32_t row,
                            int32_t token) {
  const LayerRows rows = View(id, layer, row + 1);
  const std::vector<float> key = Key(id, layer, head, token);
  std::memcpy(RowAddress(rows.k, rows.sequence, head, row), key.data(), key.size() * sizeof(float));
  const std::vector<float> value = ValueOf(id, layer, head, token);
  std::memcpy(RowAddress(rows.v, rows.sequence, head, row), value.data(),
              value.size() * sizeof(float));
}

void DecodeWorker::Append(uint64_t id, uint32_t count) {
  SequenceSpec& sequence = sequences_.at(id);
  for (uint32_t i = 0; i < count; ++i) {
    const auto token = static_cast<int32_t>(sequence.logical_len);
    for (uint32_t l = 0; l < shape_.heads.size(); ++l) {
      for (uint32_t h = 0; h < shape_.heads[l]; ++h) {
        WriteRow(id, l, h, static_cast<uint32_t>(sequence.physical_len), token);
        tokens_.at(id)[l][h].push_back(token);
      }
    }
    ++sequence.logical_len;
    ++sequence.physical_len;
  }
}

void DecodeWorker::TakeBack(uint64_t id, uint32_t count) {
  SequenceSpec& sequence = sequences_.at(id);
  sequence.logical_len -= count;
  sequence.physical_len -= count;
  for (auto& layer : tokens_.at(id)) {
    for (auto& head : layer) head.resize(head.size() - count);
  }
}

LayerRows DecodeWorker::View(uint64_t id, uint32_t layer, uint32_t rows) {
  const LayerSpec& spec = cache_->spec().layers[layer];
  LayerRows view;
  view.k = {cache_->lent().data() + spec.k.offset, spec.k.layout, {}};
  view.v = {cache_->lent().data() + spec.v.offset, spec.v.layout, {}};
  view.sequence = {sequences_.at(id).table.data(), 0, rows};
  view.q_heads = spec.q_heads;
  return view;
}

void DecodeWorker::PutQueries(SequenceSpec& sequence, uint32_t rows, uint32_t begin) {
  const uint64_t heads = MostHeads(shape_);
  ASSERT_LE(begin + rows, shape_.query_rows);
  auto* const memory = reinterpret_cast<float*>(cache_->lent().data() + cache_->tail_offset());
  for (uint32_t l = 0; l < shape_.heads.size(); ++l) {
    for (uint32_t i = 0; i < rows; ++i) {
      const auto token = static_cast<int32_t>(sequence.logical_len - rows + i);
      const std::vector<float> query = Query(sequence.sequence_id, l, token);
      std::copy(query.begin(), query.end(),
                memory + ((uint64_t{l} * shape_.query_rows + begin + i) * heads) * shape_.dk);
    }
  }
  sequence.rows_begin = begin;
  sequence.rows_count = rows;
  if (shape_.before_rope) {
    // Evicted rows leave holes, so positions come one by one: those of the first head, which only
    // matter for the newest rows.
    PositionsSpec positions;
    const auto& tokens = tokens_.at(sequence.sequence_id)[0][0];
    positions.list.assign(tokens.begin(), tokens.end());
    sequence.positions = positions;
  }
}

ScoreInputsSpec DecodeWorker::Inputs() const {
  ScoreInputsSpec inputs;
  inputs.source = AttentionSource::kQuery;
  inputs.softmax_scale = 1 / std::sqrt(static_cast<double>(shape_.dk));
  inputs.before_rope = shape_.before_rope;
  const uint64_t heads = MostHeads(shape_);
  TensorSpec q;
  q.region_id = cache_->spec().layers[0].k.region_id;
  q.offset = cache_->tail_offset();
  q.layers = static_cast<uint32_t>(shape_.heads.size());
  q.rows = shape_.query_rows;
  q.heads = static_cast<uint32_t>(heads);
  q.elems = shape_.dk;
  q.elem_stride = sizeof(float);
  q.head_stride = shape_.dk * sizeof(float);
  q.row_stride = heads * q.head_stride;
  q.layer_stride = shape_.query_rows * q.row_stride;
  inputs.q = q;
  return inputs;
}

ObserveSpec DecodeWorker::Observe(const PolicySpec* policy, const std::vector<DecodeStep>& steps) {
  ObserveSpec spec;
  spec.header.key = NewKey();
  spec.cache_id = cache_->id();
  if (policy != nullptr) spec.policy = *policy;
  uint32_t begin = 0;
  for (const DecodeStep& step : steps) {
    SequenceSpec sequence = sequences_.at(step.id);
    PutQueries(sequence, step.rows, begin);
    begin += step.rows;
    spec.sequences.push_back(std::move(sequence));
    spec.steps.push_back({step.drafts, step.trigger, step.accumulate_only});
  }
  spec.inputs = Inputs();
  spec.act.kind = ActKind::kInPlace;
  return spec;
}

CompressSpec DecodeWorker::Compress(const PolicySpec& policy, uint64_t id, uint32_t rows) {
  CompressSpec spec;
  spec.header.key = NewKey();
  spec.cache_id = cache_->id();
  SequenceSpec sequence = sequences_.at(id);
  PutQueries(sequence, rows, 0);
  spec.sequences = {std::move(sequence)};
  spec.policy = policy;
  spec.inputs = Inputs();
  spec.act.kind = ActKind::kInPlace;
  return spec;
}

RewindSpec DecodeWorker::Rewind(uint64_t id, uint32_t rows) {
  RewindSpec spec;
  spec.header.key = NewKey();
  spec.sequence_id = id;
  spec.generation = sequences_.at(id).generation;
  spec.rows = rows;
  return spec;
}

ObserveAnswer DecodeWorker::Run(ObserveSpec spec) {
  const ActKind act = spec.act.kind;
  const CallResult result = Start(world_, session_, std::move(spec)).Get();
  EXPECT_TRUE(result.status.ok()) << result.status << " " << FieldOf(result.status);
  if (!result.status.ok()) return {};
  const auto& answer = std::get<ObserveAnswer>(result.answer->body);
  for (const SequenceOutcome& outcome : answer.evicted.sequences) {
    if (act == ActKind::kInPlace) Follow(outcome);
  }
  return answer;
}

CompressAnswer DecodeWorker::Run(CompressSpec spec) {
  const ActKind act = spec.act.kind;
  const CallResult result = Start(world_, session_, std::move(spec)).Get();
  EXPECT_TRUE(result.status.ok()) << result.status << " " << FieldOf(result.status);
  if (!result.status.ok()) return {};
  const auto& answer = std::get<CompressAnswer>(result.answer->body);
  for (const SequenceOutcome& outcome : answer.sequences) {
    if (act == ActKind::kInPlace) Follow(outcome);
  }
  return answer;
}

absl::Status DecodeWorker::TryRun(ObserveSpec spec) {
  return Start(world_, session_, std::move(spec)).Get().status;
}
absl::Status DecodeWorker::TryRun(CompressSpec spec) {
  return Start(world_, session_, std::move(spec)).Get().status;
}
absl::Status DecodeWorker::TryRun(RewindSpec spec) {
  return Start(world_, session_, std::move(spec)).Get().status;
}

absl::Status DecodeWorker::TryRun(RerotateSpec spec) {
  return Start(world_, session_, std::move(spec)).Get().status;
}

void DecodeWorker::Follow(const SequenceOutcome& outcome) {
  SequenceSpec& sequence = sequences_.at(outcome.sequence_id);
  EXPECT_EQ(sequence.physical_len, outcome.physical_len);
  sequence.kv_revision = outcome.kv_revision;
  sequence.physical_len = outcome.kept;
  sequence.total_dropped = sequence.logical_len - outcome.kept;
  for (uint32_t l = 0; l < shape_.heads.size(); ++l) {
    for (uint32_t h = 0; h < shape_.heads[l]; ++h) {
      std::vector<int32_t>& tokens = tokens_.at(outcome.sequence_id)[l][h];
      std::vector<int32_t> kept;
      for (const int32_t row : outcome.triage.ListOf(l, h)) {
        kept.push_back(tokens.at(static_cast<size_t>(row)));
      }
      tokens = kept;
    }
  }
}

void DecodeWorker::Drop(const SequenceOutcome& outcome) {
  Follow(outcome);
  for (uint32_t l = 0; l < shape_.heads.size(); ++l) {
    for (uint32_t h = 0; h < shape_.heads[l]; ++h) {
      const std::vector<int32_t>& tokens = Tokens(outcome.sequence_id, l, h);
      for (uint32_t p = 0; p < tokens.size(); ++p) {
        WriteRow(outcome.sequence_id, l, h, p, tokens[p]);
      }
    }
  }
}

void DecodeWorker::CheckRows(uint64_t id) {
  const SequenceSpec& sequence = sequences_.at(id);
  for (uint32_t l = 0; l < shape_.heads.size(); ++l) {
    const LayerRows rows = View(id, l, static_cast<uint32_t>(sequence.physical_len));
    for (uint32_t h = 0; h < shape_.heads[l]; ++h) {
      const std::vector<int32_t>& tokens = Tokens(id, l, h);
      ASSERT_EQ(tokens.size(), sequence.physical_len);
      for (uint32_t p = 0; p < tokens.size(); ++p) {
        const std::vector<float> key = Key(id, l, h, tokens[p]);
        ASSERT_EQ(std::memcmp(RowAddress(rows.k, rows.sequence, h, p), key.data(),
                              key.size() * sizeof(float)),
                  0)
            << "layer " << l << " head " << h << " row " << p;
        float value = 0;
        std::memcpy(&value, RowAddress(rows.v, rows.sequence, h, p), sizeof value);
        ASSERT_EQ(value, Value(id, l, 1, h, tokens[p], 0));
      }
    }
  }
}

}  // namespace kvtriage
