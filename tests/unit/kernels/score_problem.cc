#include "tests/unit/kernels/score_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/core/dtype.h"
#include "tests/support/golden_inputs.h"

namespace kvtriage {
namespace {

constexpr CacheLayout kContiguous = {"contiguous", 0, false, 0};

std::string CompareLists(const char* name, const std::vector<float>& got,
                         const std::vector<double>& want) {
  char text[160];
  if (got.size() != want.size()) {
    std::snprintf(text, sizeof text, "%s: %zu numbers, want %zu", name, got.size(), want.size());
    return text;
  }
  double most = 0;
  for (const double x : want) most = std::isfinite(x) ? std::max(most, std::abs(x)) : most;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = got[i], ref = want[i];
    if (std::isnan(ref) ? std::isnan(x) : x == ref) continue;
    const double error = std::abs(x - ref);
    const bool close =
        error <= 2e-5 * most && (ref <= 1e-6 * most || error <= 1e-4 * std::abs(ref));
    if (close) continue;
    std::snprintf(text, sizeof text, "%s[%zu]: %.9g, want %.9g (largest %.3g)", name, i, x, ref,
                  most);
    return text;
  }
  return "";
}

}  // namespace

ScoreProblem::ScoreProblem(const ProblemShape& shape, uint64_t case_number) : shape_(shape) {
  const auto stream = [&](uint64_t n, size_t count) {
    return GridValues(case_number * 1000 + n, count);
  };
  const std::vector<float> q = stream(1, size_t{shape.q_heads} * shape.rows * shape.dk);
  q_.assign(q.begin(), q.end());
  k_ = stream(2, size_t{shape.kv_heads} * shape.tokens * shape.dk);
  v_ = stream(3, size_t{shape.kv_heads} * shape.tokens * shape.dv);
  scale_ = 1.0f / std::sqrt(static_cast<float>(shape.dk));
  Place(kContiguous, DType::kF32);
}

ScoreProblem::ScoreProblem(const ProblemShape& shape, std::vector<double> q, std::vector<float> k,
                           std::vector<float> v)
    : shape_(shape), q_(std::move(q)), k_(std::move(k)), v_(std::move(v)), scale_(1.0f) {
  Place(kContiguous, DType::kF32);
}

void ScoreProblem::Place(const CacheLayout& layout, DType type, const CacheScales& scales) {
  cache_ = std::make_unique<PlacedCache>(layout, type, shape_.q_heads, shape_.kv_heads,
                                         shape_.tokens, k_, v_, scales);
  layer_ = cache_->layer();
}

void ScoreProblem::PlaceInterleaved(DType type) {
  const uint64_t element = ElementBytes(type), row = (shape_.dk + shape_.dv) * element;
  interleaved_.assign(row * shape_.tokens * shape_.kv_heads, std::byte{0});
  interleaved_table_ = {0};
  ViewLayout layout;
  layout.head_stride = row;
  layout.slot_stride = row * shape_.kv_heads;
  layout.block_stride = interleaved_.size();
  layout.elem_stride = element;
  layout.num_blocks = 1;
  layout.block_slots = shape_.tokens;
  layout.heads = shape_.kv_heads;
  layout.dtype = type;
  layer_.sequence = {interleaved_table_.data(), 0, shape_.tokens};
  layer_.q_heads = shape_.q_heads;
  layer_.k = {interleaved_.data(), layout};
  layer_.v = {interleaved_.data() + shape_.dk * element, layout};
  layer_.k.layout.row_elems = shape_.dk;
  layer_.v.layout.row_elems = shape_.dv;
  const auto fill = [&](const KvView& view, const std::vector<float>& x) {
    const uint32_t elems = view.layout.row_elems;
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      for (uint32_t p = 0; p < shape_.tokens; ++p) {
        std::byte* const at = RowAddress(view, layer_.sequence, h, p);
        for (uint32_t c = 0; c < elems; ++c) {
          StoreElement(at + c * element, type, x[(size_t{h} * shape_.tokens + p) * elems + c]);
        }
      }
    }
  };
  fill(layer_.k, k_);
  fill(layer_.v, v_);
}

void ScoreProblem::SetTensors(DType type, bool rows_first) {
  tensor_type_ = type;
  rows_first_ = rows_first;
}

LayerRows ScoreProblem::layer() const {
  LayerRows layer = layer_;
  layer.sliding_window = sliding_window_;
  return layer;
}

void ScoreProblem::SetLogits(AttentionInput& input) const {
  input.softcap = softcap_;
  input.rotation = rotation_;
  if (!sinks_.empty()) input.sink_logits = sink_tensor.view;
  if (!slopes_.empty()) input.alibi_slopes = slope_tensor.view;
}

void ScoreProblem::MakeTensors(bool reads_values) {
  sink_tensor = MakeTensor(sinks_, static_cast<uint32_t>(sinks_.size()), 1, 1, DType::kF32, true);
  slope_tensor =
      MakeTensor(slopes_, static_cast<uint32_t>(slopes_.size()), 1, 1, DType::kF32, true);
  q_tensor = MakeTensor(q_, shape_.q_heads, shape_.rows, shape_.dk, tensor_type_, rows_first_);
  AttentionInput input;
  input.source = AttentionSource::kQuery;
  input.scale = scale_;
  input.q = q_tensor.view;
  input.row_limits = limits_;
  SetLogits(input);
  const PlainAttention x = PlainAttend(layer(), input, shape_.rows, reads_values);
  // Rows that cannot see anything still have a place in the tensors.
  const auto widen = [&](const std::vector<double>& from, size_t elems, double rest) {
    std::vector<double> all(size_t{shape_.q_heads} * shape_.rows * elems, rest);
    const size_t skip = shape_.rows - x.rows;
    for (size_t h = 0; h < shape_.q_heads; ++h) {
      for (size_t i = 0; i < x.rows * elems; ++i) {
        all[(h * shape_.rows + skip) * elems + i] = from[h * x.rows * elems + i];
      }
    }
    return all;
  };
  const uint32_t heads = shape_.q_heads, rows = shape_.rows;
  if (x.dv > 0) {
    o_tensor = MakeTensor(widen(x.o, x.dv, 0), heads, rows, x.dv, tensor_type_, rows_first_);
  }
  lse_tensor = MakeTensor(widen(x.lse, 1, 0), heads, rows, 1, DType::kF32, rows_first_);
  a_tensor = MakeTensor(widen(x.a, x.tokens, 0), heads, rows, x.tokens, DType::kF32, rows_first_);
  z_tensor = MakeTensor(widen(x.z, x.tokens, 0), heads, rows, x.tokens, DType::kF32, rows_first_);
  std::vector<double> sums(size_t{heads} * x.tokens, 0.0);
  for (size_t row = 0; row < x.usable.size(); ++row) {
    for (size_t p = 0; p < x.tokens; ++p) {
      sums[row / x.rows * x.tokens + p] += x.a[row * x.tokens + p];
    }
  }
  sums_tensor = MakeTensor(sums, heads, 1, x.tokens, DType::kF32, rows_first_);
}

ScoreRequest ScoreProblem::Request(AttentionSource source, const ScoreSpec& spec) {
  MakeTensors(ReadsValues(spec.scorer));
  ScoreRequest request;
  request.layer = layer();
  request.window = shape_.rows;
  request.pool_end = shape_.tokens;
  request.spec = spec;
  AttentionInput& input = request.input;
  input.source = source;
  input.scale = scale_;
  input.row_limits = limits_;
  SetLogits(input);
  if (source == AttentionSource::kQuery || source == AttentionSource::kQueryOutput) {
    input.q = q_tensor.view;
  }
  if (source == AttentionSource::kQueryOutput) input.lse = lse_tensor.view;
  if (source == AttentionSource::kReady) {
    input.a = a_tensor.view;
    if (NeedsOutputs(spec.scorer)) input.z = z_tensor.view;
  }
  const bool takes_o = source == AttentionSource::kQueryOutput || source == AttentionSource::kReady;
  if (takes_o && NeedsOutputs(spec.scorer)) input.o = o_tensor.view;
  if (source == AttentionSource::kColumnSums) input.sums = sums_tensor.view;
  return request;
}

std::string Difference(const ScoreResult& result, const PlainScores& plain) {
  if (result.lists != plain.lists) return "number of lists";
  if (result.usable_rows != plain.usable_rows) return "usable rows";
  if (result.skipped_rows != plain.skipped_rows) {
    return "skipped rows: " + std::to_string(result.skipped_rows);
  }
  if (result.nonfinite_tokens != plain.nonfinite_tokens) {
    return "nonfinite tokens: " + std::to_string(result.nonfinite_tokens);
  }
  const std::string scores = CompareLists("scores", result.scores, plain.scores);
  return scores.empty() ? CompareLists("mass", result.mass, plain.mass) : scores;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

}  // namespace kvtriage
