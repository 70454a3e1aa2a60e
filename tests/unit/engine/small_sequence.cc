#include "tests/unit/engine/small_sequence.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kvtriage/kernels/backend.h"
#include "service/policy/named_policies.h"
#include "tests/support/golden_inputs.h"

namespace kvtriage {

TriageLayer& SmallSequence::AddLayer(uint32_t q_heads, uint32_t heads, uint32_t rows,
                                     const std::vector<float>& k, const std::vector<float>& v,
                                     const CacheLayout& layout) {
  caches_.push_back(std::make_unique<PlacedCache>(layout, DType::kF32, q_heads, heads, rows, k, v));
  sequence.rows = rows;
  sequence.layers.push_back(
      {caches_.back()->layer(), {}, static_cast<uint32_t>(sequence.layers.size())});
  return sequence.layers.back();
}

TensorView SmallSequence::Tensor(const std::vector<double>& x, uint32_t heads, uint32_t rows,
                                 uint32_t elems) {
  tensors_.push_back(MakeTensor(x, heads, rows, elems, DType::kF32, false));
  return tensors_.back().view;
}

TriageLayer& SmallSequence::AddGridLayer(uint64_t seed, uint32_t q_heads, uint32_t heads,
                                         uint32_t rows, uint32_t size, uint32_t queries,
                                         const CacheLayout& layout) {
  const size_t count = size_t{heads} * rows * size;
  TriageLayer& layer = AddLayer(q_heads, heads, rows, GridValues(seed + 2, count),
                                GridValues(seed + 3, count), layout);
  const std::vector<float> q = GridValues(seed + 1, size_t{q_heads} * queries * size);
  layer.input.source = AttentionSource::kQuery;
  layer.input.scale = 1.0f / std::sqrt(static_cast<float>(size));
  layer.input.q = Tensor({q.begin(), q.end()}, q_heads, queries, size);
  constexpr uint32_t kHidden = 12;
  const std::vector<float> w = GridValues(seed + 4, size_t{q_heads} * kHidden * size);
  const std::vector<float> mean = GridValues(seed + 5, size_t{q_heads} * size);
  layer.input.query_mean = Tensor({mean.begin(), mean.end()}, q_heads, 1, size);
  layer.input.query_covariance =
      Tensor(std::vector<double>(size_t{q_heads} * size * size, 0.01), q_heads, size, size);
  layer.input.output_projection = Tensor({w.begin(), w.end()}, q_heads, kHidden, size);
  return layer;
}

TriageLayer& SmallSequence::AddSumsLayer(uint32_t heads, const std::vector<double>& sums) {
  const auto rows = static_cast<uint32_t>(sums.size() / heads);
  const std::vector<float> zeros(size_t{heads} * rows);
  TriageLayer& layer = AddLayer(heads, heads, rows, zeros, zeros);
  layer.input.source = AttentionSource::kColumnSums;
  layer.input.sums_axis = HeadAxis::kKv;
  layer.input.sums = Tensor(sums, heads, 1, rows);
  return layer;
}

PolicySpec PlainPolicy(Scorer scorer) {
  PolicySpec policy;
  policy.score.scorer = scorer;
  policy.has_window = policy.has_reduce = policy.has_pool = true;
  policy.window.all = true;
  return policy;
}

PolicySpec NamedPolicy(std::string_view name, uint32_t tokens) {
  PolicySpec policy = *ExpandPolicy(name);
  policy.budget.kept_tokens = tokens;
  return policy;
}

TriageResult Triage(const TriageSequence& sequence, const PolicySpec& policy,
                    const MeasureSpec& measure) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  TriageResult result;
  const absl::Status status = TriageOne(*backend, sequence, policy, measure, nullptr, result);
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

std::vector<size_t> Counts(const TriageResult& result) {
  std::vector<size_t> counts;
  for (const std::vector<int32_t>& list : result.kept) counts.push_back(list.size());
  return counts;
}

}  // namespace kvtriage
