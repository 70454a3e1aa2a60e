#include "service/engine/triage_score.h"

#include <algorithm>
#include <utility>

#include "kernels/core/score_rules.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

std::span<const float> RowsOf(const std::vector<float>& scores, uint32_t list, uint32_t rows) {
  return std::span<const float>(scores).subspan(uint64_t{list} * rows, rows);
}

uint32_t VotingRows(const PolicySpec& policy, const AttentionInput& input, uint32_t rows) {
  const uint32_t wanted = policy.window.all ? rows : std::min(policy.window.last, rows);
  return std::min(wanted, SuppliedRows(input));
}

// Pooling ends where the recent window begins, trimmed by the budget or not.
void SetPoolEnds(const KeepPlan& plan, const ListLayout& lists, uint32_t layer, uint32_t rows,
                 ScoreRequest& request) {
  const uint32_t heads = request.layer.k.layout.heads;
  request.pool_end = rows - plan.recent[lists.Of(layer, 0)];
  bool equal = true;
  for (uint32_t h = 1; h < heads; ++h) {
    equal = equal && rows - plan.recent[lists.Of(layer, h)] == request.pool_end;
  }
  for (uint32_t h = 0; !equal && h < heads; ++h) {
    request.pool_ends.push_back(rows - plan.recent[lists.Of(layer, h)]);
  }
}

// The budgets of the lists from `first` on.
void SetBudgets(const KeepPlan& plan, uint32_t first, const Budget& budget,
                SelectRequest& request) {
  request.budget = plan.budgets[first];
  request.adaptive_alpha = budget.adaptive_alpha;
  if (budget.explicit_heads.empty()) return;
  const auto begin = plan.budgets.begin() + first;
  request.list_budgets.assign(begin, begin + static_cast<int64_t>(request.scores.size()));
}

std::vector<int32_t> Shifted(std::vector<int32_t> rows, int32_t by) {
  for (int32_t& row : rows) row += by;
  return rows;
}

std::vector<float> SumOf(std::span<const ScoreResult> layers, uint32_t rows) {
  std::vector<std::span<const float>> parts;
  for (const ScoreResult& layer : layers) {
    for (uint32_t list = 0; list < layer.lists; ++list)
      parts.push_back(RowsOf(layer.scores, list, rows));
  }
  return SumScores(parts);
}

}  // namespace

absl::Status ScoreLayers(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                         const ListLayout& lists, const KeepPlan& plan, const StopCheck& stop,
                         std::vector<ScoreResult>& scores) {
  const bool expects = policy.score.scorer == Scorer::kExpectedAttention;
  const bool uses_queries = UsesQueries(policy.score.scorer);
  std::vector<ScoreRequest> requests;
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    const TriageLayer& layer = sequence.layers[l];
    ScoreRequest request{.layer = layer.rows,
                         .layer_index = layer.layer_index,
                         .spec = policy.score,
                         .sinks = policy.protect.sinks};
    if (expects) {
      request.input = layer.input;
      request.rope = layer.rope;
      request.next_position = sequence.next_position;
    }
    if (uses_queries) {
      request.input = layer.input;
      request.window = VotingRows(policy, layer.input, sequence.rows);
    }
    SetPoolEnds(plan, lists, l, sequence.rows, request);
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
                        const ScoredSequence& scored, TriageResult& result) {
  const bool per_head = policy.granularity == Granularity::kPerHead;
  std::vector<SelectRequest> requests(per_head ? scored.scores.size() : scored.shared.size());
  std::vector<std::vector<int32_t>> shifted;  // behind `protect` of the requests
  for (size_t group = 0; group < requests.size(); ++group) {
    SelectRequest& request = requests[group];
    // Chosen among its candidates alone, as if row `first` were row 0.
    const uint32_t first = scored.plan.first[scored.lists.first[group]];
    request.rows = sequence.rows - first;
    if (per_head) {
      const ScoreResult& layer = scored.scores[group];
      for (uint32_t h = 0; h < KvHeads(sequence.layers[group]); ++h) {
        request.scores.push_back(RowsOf(layer.scores, h, sequence.rows).subspan(first));
        if (layer.second_scores.empty()) continue;
        request.second_scores.push_back(
            RowsOf(layer.second_scores, h, sequence.rows).subspan(first));
      }
      request.first_stage = policy.score.first_stage;
    } else {
      request.scores.push_back(std::span<const float>(scored.shared[group]).subspan(first));
    }
    SetBudgets(scored.plan, scored.lists.first[group], policy.budget, request);
    for (uint32_t i = 0; i < request.scores.size(); ++i) {
      const std::vector<int32_t>& set = scored.plan.protect.Of(scored.lists.first[group] + i).rows;
      if (first > 0) shifted.push_back(Shifted(set, -static_cast<int32_t>(first)));
      request.protect.push_back(first > 0 ? shifted.back() : set);
    }
  }
  std::vector<SelectResult> selected;
  KVTRIAGE_RETURN_IF_ERROR(backend.Select(requests, selected));
  for (size_t group = 0; group < selected.size(); ++group) {
    SelectResult& one = selected[group];
    const uint32_t first = scored.plan.first[scored.lists.first[group]];
    for (std::vector<int32_t>& list : one.kept) {
      result.kept.push_back(first > 0 ? Shifted(std::move(list), static_cast<int32_t>(first))
                                      : std::move(list));
    }
    if (!per_head) continue;  // two stages need a list per head
    result.layers[group].stage1 = one.stage1;
    result.layers[group].stage2 = one.stage2;
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
