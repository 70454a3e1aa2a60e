// Decodes through the engine against the reference's Accumulator: the rows that every eviction
// keeps, in every element type.
#include <cstring>

#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"
#include "tests/support/golden_inputs.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

using nlohmann::json;

Scorer ScorerOf(const std::string& name) {
  if (name == "value") return Scorer::kObcValue;
  if (name == "joint") return Scorer::kObcJoint;
  return name == "drop" ? Scorer::kDrop : Scorer::kAttention;
}

// The case's tokens: queries [Hq][tokens][d], keys and values [Hk][tokens][d].
struct Tokens {
  explicit Tokens(const GoldenFile& file)
      : q_heads(file["shape"]["Hq"]),
        heads(file["shape"]["Hk"]),
        size(file["shape"]["d"]),
        count(file["shape"]["tokens"]) {
    const uint64_t number = file["case_number"];
    q = GridValues(number * 1000 + 1, size_t{q_heads} * count * size);
    k = GridValues(number * 1000 + 2, size_t{heads} * count * size);
    v = GridValues(number * 1000 + 3, size_t{heads} * count * size);
  }
  const float* Of(const std::vector<float>& x, uint32_t head, uint32_t token) const {
    return x.data() + (size_t{head} * count + token) * size;
  }
  const uint32_t q_heads, heads, size, count;
  std::vector<float> q, k, v;
};

class Decoder {
 public:
  Decoder(const GoldenFile& file, DType type)
      : file_(file),
        type_(type),
        tokens_(file),
        cache_(session_, {.blocks = 16,
                          .block_slots = 16,
                          .heads = {tokens_.heads},
                          .group = tokens_.q_heads / tokens_.heads,
                          .dk = tokens_.size,
                          .dv = tokens_.size,
                          .dtype = type}) {
    std::vector<int32_t> table;
    for (int32_t block = 15; block >= 0; --block) table.push_back(block);
    sequence_ = cache_.Sequence(1, 0, table);
    Append(file["unseen"]);
  }

  void Append(uint32_t rows) {
    for (uint32_t i = 0; i < rows; ++i, ++token_) {
      const LayerSpec& layer = cache_.spec().layers[0];
      for (uint32_t h = 0; h < tokens_.heads; ++h) {
        Write(layer.k, h, tokens_.Of(tokens_.k, h, token_));
        Write(layer.v, h, tokens_.Of(tokens_.v, h, token_));
      }
      ++sequence_.physical_len;
      ++sequence_.logical_len;
    }
  }

  void Step(const json& step) {
    const uint32_t rows = step["rows"], drafts = step["drafts"], back = step["rewind"];
    const uint32_t first = token_;
    Append(rows);
    const CallResult result = Start(world_, session_, Observe(first, rows, drafts)).Get();
    ASSERT_TRUE(result.status.ok()) << result.status;
    const auto& answer = std::get<ObserveAnswer>(result.answer->body);
    ASSERT_EQ(answer.steps[0].evicted.has_value(), !step["kept"].is_null());
    if (answer.steps[0].evicted) {
      const SequenceOutcome& outcome = answer.evicted.sequences[0];
      ASSERT_EQ(outcome.triage.kept, file_.Lists(step["kept"]));
      sequence_.physical_len = outcome.kept;
      sequence_.total_dropped = sequence_.logical_len - outcome.kept;
      sequence_.kv_revision = outcome.kv_revision;
    }
    if (back == 0) return;
    RewindSpec rewind;
    rewind.header.key = NewKey();
    rewind.sequence_id = 1;
    rewind.rows = back;
    ASSERT_TRUE(Start(world_, session_, rewind).Get().status.ok());
    sequence_.physical_len -= back;
    sequence_.logical_len -= back;
  }

 private:
  void Write(const ViewSpec& view, uint32_t head, const float* x) {
    const uint64_t row = sequence_.physical_len;
    const KvView at{cache_.lent().data() + view.offset, view.layout, {}};
    std::byte* const to =
        RowAddress(at, {sequence_.table.data(), 0, static_cast<uint32_t>(row) + 1}, head, row);
    for (uint32_t e = 0; e < tokens_.size; ++e) {
      StoreElement(to + e * view.layout.elem_stride, type_, x[e]);
    }
  }

  ObserveSpec Observe(uint32_t first, uint32_t rows, uint32_t drafts) {
    const uint64_t element = ElementBytes(type_);
    TensorSpec q;
    q.region_id = cache_.spec().layers[0].k.region_id;
    q.offset = cache_.tail_offset();
    q.dtype = type_;
    q.rows = rows;
    q.heads = tokens_.q_heads;
    q.elems = tokens_.size;
    q.elem_stride = element;
    q.head_stride = element * tokens_.size;
    q.row_stride = q.layer_stride = q.head_stride * tokens_.q_heads;
    for (uint32_t i = 0; i < rows; ++i) {
      for (uint32_t h = 0; h < tokens_.q_heads; ++h) {
        std::byte* const to =
            cache_.lent().data() + q.offset + i * q.row_stride + h * q.head_stride;
        for (uint32_t e = 0; e < tokens_.size; ++e) {
          StoreElement(to + e * element, type_, tokens_.Of(tokens_.q, h, first + i)[e]);
        }
      }
    }
    ObserveSpec spec;
    spec.header.key = NewKey();
    spec.cache_id = cache_.id();
    if (!named_) spec.policy = Policy();
    named_ = true;
    spec.sequences = {sequence_};
    spec.sequences[0].rows_count = rows;
    spec.steps = {{.draft_rows = drafts, .trigger = file_["trigger"]}};
    spec.inputs.source = AttentionSource::kQuery;
    spec.inputs.softmax_scale = file_["scale"];
    spec.inputs.q = q;
    spec.act.kind = ActKind::kInPlace;
    return spec;
  }

  PolicySpec Policy() const {
    PolicySpec policy;
    policy.score.scorer = ScorerOf(file_["scorer"]);
    policy.has_window = policy.has_reduce = policy.has_pool = true;
    policy.window.all = true;
    policy.window.decay = file_["decay"];
    policy.protect.sinks = file_["sinks"];
    policy.protect.recent = file_["recent"];
    policy.budget.kept_tokens = file_["budget"].get<uint32_t>();
    return policy;
  }

  const GoldenFile& file_;
  const DType type_;
  const Tokens tokens_;
  EngineWorld world_{{}, nullptr, MakeCpuBackend(2)};
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_;
  SequenceSpec sequence_;
  uint32_t token_ = 0;
  bool named_ = false;
};

class GoldenDecode : public testing::TestWithParam<std::string> {};

TEST_P(GoldenDecode, EveryEvictionKeepsTheReferencesRows) {
  const GoldenFile file(GetParam());
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(type));
    Decoder decoder(file, type);
    size_t number = 0;
    for (const json& step : file["steps"]) {
      SCOPED_TRACE("step " + std::to_string(number++));
      ASSERT_NO_FATAL_FAILURE(decoder.Step(step));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenDecode, testing::ValuesIn(GoldenIds("decode")),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvtriage
