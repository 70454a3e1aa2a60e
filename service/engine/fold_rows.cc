#include "service/engine/fold_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/triage_lists.h"

namespace kvtriage {
namespace {

// One query row of a view.
void Cut(TensorView& view, uint32_t row) {
  if (!view) return;
  view.base += row * view.row_stride;
  view.rows = 1;
}

// Row `row` of an input's queries alone.
AttentionInput OneRow(AttentionInput input, uint32_t row) {
  for (TensorView* view : {&input.q, &input.o, &input.lse, &input.a, &input.z}) Cut(*view, row);
  if (input.rotation.positions != nullptr) input.rotation.positions += row;
  input.rotation.first += row;
  return input;
}

ScoreRequest RequestOf(const TriageLayer& layer, uint32_t end, uint32_t rows,
                       const PolicySpec& policy) {
  ScoreRequest request{.layer = layer.rows, .input = layer.input, .window = rows};
  request.layer_index = layer.layer_index;
  request.layer.sequence.rows = end;
  request.spec.scorer = policy.score.scorer;
  request.spec.reduce = policy.score.reduce;
  request.partial = true;
  return request;
}

// What a result adds to a column. kVatp weighs by |v| when it selects: here it adds up A, whose sum
// over the group is the mass.
float Contribution(const ScoreRequest& request, const ScoreResult& result, size_t at) {
  const float score = result.scores[at];
  if (request.spec.scorer != Scorer::kVatp) return score;
  if (std::isnan(score)) return score;
  const bool per_kv_head = request.input.source == AttentionSource::kColumnSums &&
                           request.input.sums_axis == HeadAxis::kKv;
  if (request.spec.reduce == Reduce::kSum || per_kv_head) return result.mass[at];
  const uint32_t group = request.layer.q_heads / request.layer.k.layout.heads;
  return result.mass[at] / static_cast<float>(group);
}

absl::Status Add(const ScoreRequest& request, const ScoreResult& result, uint32_t columns,
                 LayerSums& sums) {
  if (sums.lists == 0) {
    sums.lists = result.lists;
    sums.sums.resize(uint64_t{columns} * result.lists);
  }
  if (sums.lists != result.lists) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums.heads",
                 "the running sums were made of other heads")
        .Got(result.lists)
        .Limit(sums.lists);
  }
  const uint64_t rows = request.layer.sequence.rows;
  for (uint64_t list = 0; list < result.lists; ++list) {
    for (uint64_t p = 0; p < rows; ++p) {
      sums.sums[list * columns + p] += Contribution(request, result, list * rows + p);
    }
  }
  return absl::OkStatus();
}

void Count(const std::vector<ScoreResult>& results, uint32_t rows, bool votes, FoldCounts& counts) {
  if (votes) counts.rows += rows;
  counts.usable.resize(results.size());
  counts.skipped.resize(results.size());
  for (size_t l = 0; l < results.size(); ++l) {
    counts.usable[l].resize(results[l].usable_rows.size());
    for (size_t list = 0; list < results[l].usable_rows.size(); ++list) {
      counts.usable[l][list] += results[l].usable_rows[list];
    }
    counts.skipped[l] += results[l].skipped_rows;
  }
}

absl::Status FoldOnce(Backend& backend, const std::vector<ScoreRequest>& requests, uint32_t rows,
                      const StopCheck& stop, RowSums& sums, FoldCounts& counts) {
  std::vector<ScoreResult> results;
  KVTRIAGE_RETURN_IF_ERROR(backend.Score(requests, stop, results));
  sums.layers.resize(requests.size());
  for (size_t l = 0; l < requests.size(); ++l) {
    KVTRIAGE_RETURN_IF_ERROR(Add(requests[l], results[l], sums.columns, sums.layers[l]));
  }
  const bool votes = requests.front().input.source != AttentionSource::kColumnSums;
  Count(results, rows, votes, counts);
  return absl::OkStatus();
}

void Decay(float decay, RowSums& sums) {
  for (LayerSums& layer : sums.layers) {
    for (float& sum : layer.sums) sum *= decay;
  }
}

}  // namespace

void Extend(uint32_t columns, RowSums& sums) {
  for (LayerSums& layer : sums.layers) {
    std::vector<float> wider(uint64_t{layer.lists} * columns);
    for (uint64_t list = 0; list < layer.lists; ++list) {
      std::copy_n(layer.sums.begin() + static_cast<int64_t>(list * sums.columns), sums.columns,
                  wider.begin() + static_cast<int64_t>(list * columns));
    }
    layer.sums = std::move(wider);
  }
  sums.columns = columns;
}

void FillEmpty(const std::vector<TriageLayer>& layers, RowSums& sums) {
  sums.layers.resize(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerSums& layer = sums.layers[l];
    if (layer.lists != 0) continue;
    layer.lists = KvHeads(layers[l]);
    layer.sums.assign(uint64_t{layer.lists} * sums.columns, 0.0f);
  }
}

absl::Status FoldRows(Backend& backend, const std::vector<TriageLayer>& layers, uint32_t end,
                      uint32_t rows, const PolicySpec& policy, const StopCheck& stop, RowSums& sums,
                      FoldCounts& counts) {
  if (rows == 0 || layers.empty()) return absl::OkStatus();
  std::vector<ScoreRequest> requests;
  // Sums decay between rows, and the maximum over heads is taken of each row: one row at a time.
  const bool by_row = policy.window.decay != 1 || policy.score.reduce == Reduce::kMax;
  if (!by_row) {
    for (const TriageLayer& layer : layers) {
      requests.push_back(RequestOf(layer, end, rows, policy));
    }
    return FoldOnce(backend, requests, rows, stop, sums, counts);
  }
  for (uint32_t row = 0; row < rows; ++row) {
    requests.clear();
    for (const TriageLayer& layer : layers) {
      requests.push_back(RequestOf(layer, end - rows + row + 1, 1, policy));
      requests.back().input = OneRow(layer.input, row);
    }
    if (policy.window.decay != 1) Decay(static_cast<float>(policy.window.decay), sums);
    KVTRIAGE_RETURN_IF_ERROR(FoldOnce(backend, requests, 1, stop, sums, counts));
  }
  return absl::OkStatus();
}

absl::Status CheckUsable(const FoldCounts& counts) {
  if (counts.rows == 0) return absl::OkStatus();
  for (const std::vector<uint64_t>& layer : counts.usable) {
    const auto idle = std::find(layer.begin(), layer.end(), 0u);
    if (idle == layer.end()) continue;
    return Error(ErrorReason::kNoUsableRow, "inputs", "no query row of this KV head can vote")
        .Index(static_cast<uint64_t>(idle - layer.begin()));
  }
  return absl::OkStatus();
}

absl::Status ScoreSums(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                       const RowSums& sums, const StopCheck& stop, ScoredSequence& scored,
                       TriageResult& result) {
  TriageSequence from = sequence;
  for (size_t l = 0; l < from.layers.size(); ++l) {
    const LayerSums& layer = sums.layers[l];
    AttentionInput& input = from.layers[l].input;
    input = {};
    input.source = AttentionSource::kColumnSums;
    input.sums_axis = layer.lists == 1 ? HeadAxis::kSummed : HeadAxis::kKv;
    if (layer.lists == KvHeads(from.layers[l])) input.sums_axis = HeadAxis::kKv;
    input.sums = {reinterpret_cast<const std::byte*>(layer.sums.data()),
                  DType::kF32,
                  1,
                  layer.lists,
                  sums.columns,
                  0,
                  sums.columns * sizeof(float),
                  sizeof(float)};
  }
  PolicySpec summed = policy;
  if (policy.score.scorer != Scorer::kVatp) summed.score.scorer = Scorer::kAttention;
  summed.score.reduce = Reduce::kSum;  // over the group it is done
  KVTRIAGE_RETURN_IF_ERROR(ScoreSequence(backend, from, summed, stop, scored, result));
  // Sums of squares are no attention mass, nor are maxima.
  const Scorer scorer = policy.score.scorer;
  const bool mass = (scorer == Scorer::kAttention || scorer == Scorer::kVatp) &&
                    policy.score.reduce != Reduce::kMax;
  for (ScoreResult& layer : scored.scores) {
    if (!mass) layer.mass.clear();
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
