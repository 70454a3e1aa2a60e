#include "service/engine/triage_score.h"

#include <algorithm>
#include <utility>

#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

std::span<const float> ScoresOf(const ScoreResult& result, uint32_t list, uint32_t rows) {
  return std::span<const float>(result.scores).subspan(uint64_t{list} * rows, rows);
}

uint32_t VotingRows(const PolicySpec& policy, const AttentionInput& input, uint32_t rows) {
  const uint32_t wanted = policy.window.all ? rows : std::min(policy.window.last, rows);
  return std::min(wanted, SuppliedRows(input));
}

std::vector<float> SumOf(std::span<const ScoreResult> layers, uint32_t rows) {
  std::vector<std::span<const float>> parts;
  for (const ScoreResult& layer : layers) {
    for (uint32_t list = 0; list < layer.lists; ++list)
      parts.push_back(ScoresOf(layer, list, rows));
  }
  return SumScores(parts);
}

}  // namespace

uint32_t SuppliedRows(const AttentionInput& input) {
  switch (input.source) {
    case AttentionSource::kQuery:
    case AttentionSource::kQueryOutput:
      return input.q.rows;
    case AttentionSource::kReady:
      return input.a.rows;
    case AttentionSource::kNone:
    case AttentionSource::kColumnSums:
      return 0;
  }
  return 0;
}

absl::Status ScoreLayers(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                         uint32_t budget, const StopCheck& stop, std::vector<ScoreResult>& scores) {
  const bool uses_queries = UsesQueries(policy.score.scorer);
  std::vector<ScoreRequest> requests;
  for (const TriageLayer& layer : sequence.layers) {
    ScoreRequest request{
        .layer = layer.rows, .layer_index = layer.layer_index, .spec = policy.score};
    if (uses_queries) {
      request.input = layer.input;
      request.window = VotingRows(policy, layer.input, sequence.rows);
    }
    // Pooling ends where the recent window begins, trimmed by the budget or not.
    request.pool_end = sequence.rows - RecentRows(sequence.rows, budget, policy.protect);
    requests.push_back(std::move(request));
  }
  return backend.Score(requests, stop, scores);
}

std::vector<std::vector<float>> ShareScores(Granularity granularity, uint32_t rows,
                                            std::span<const ScoreResult> scores) {
  std::vector<std::vector<float>> shared;
  if (granularity == Granularity::kPerSequence) shared.push_back(SumOf(scores, rows));
  if (granularity != Granularity::kPerLayer) return shared;
  for (size_t l = 0; l < scores.size(); ++l) shared.push_back(SumOf(scores.subspan(l, 1), rows));
  return shared;
}

absl::Status SelectRows(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                        const ScoredSequence& scored, std::vector<std::vector<int32_t>>& kept) {
  const bool per_head = policy.granularity == Granularity::kPerHead;
  std::vector<SelectRequest> requests(per_head ? scored.scores.size() : scored.shared.size());
  for (size_t group = 0; group < requests.size(); ++group) {
    SelectRequest& request = requests[group];
    request.rows = sequence.rows;
    request.budget = scored.budget;
    if (per_head) {
      for (uint32_t h = 0; h < KvHeads(sequence.layers[group]); ++h) {
        request.scores.push_back(ScoresOf(scored.scores[group], h, sequence.rows));
      }
      request.adaptive_alpha = policy.budget.adaptive_alpha;
    } else {
      request.scores.push_back(scored.shared[group]);
    }
    for (uint32_t i = 0; i < request.scores.size(); ++i) {
      request.protect.push_back(scored.protect.Of(scored.lists.first[group] + i).rows);
    }
  }
  std::vector<SelectResult> results;
  KVTRIAGE_RETURN_IF_ERROR(backend.Select(requests, results));
  for (SelectResult& result : results) {
    std::move(result.kept.begin(), result.kept.end(), std::back_inserter(kept));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
