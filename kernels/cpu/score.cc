#include "kernels/cpu/score.h"

#include <algorithm>
#include <vector>

#include "kernels/core/score_rules.h"
#include "kernels/core/status_macros.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/score_critical.h"
#include "kernels/cpu/score_expected.h"
#include "kernels/cpu/score_keys.h"
#include "kernels/cpu/score_lagkv.h"
#include "kernels/cpu/score_queries.h"
#include "kernels/cpu/score_sums.h"

namespace kvtriage {
namespace {

void PoolLists(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  const ScoreSpec& spec = request.spec;
  if (spec.pool == Pool::kNone || spec.pool_kernel <= 1) return;
  const size_t tokens = request.layer.sequence.rows;
  std::vector<std::vector<float>> scratch(static_cast<size_t>(team.threads()));
  team.Run(result.lists, [&](size_t list, int worker) {
    const uint32_t asked = request.pool_ends.empty() ? request.pool_end : request.pool_ends[list];
    const size_t end = std::min<size_t>(asked, tokens);
    PoolScores(spec.pool, spec.pool_kernel, {result.scores.data() + list * tokens, end},
               scratch[static_cast<size_t>(worker)]);
  });
}

absl::Status ScoreSource(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  switch (request.spec.scorer) {
    case Scorer::kRecency:
    case Scorer::kRandom:
      ScoreWithoutCache(request, team, result);
      return absl::OkStatus();
    case Scorer::kKeyNorm:
    case Scorer::kKeyDiff:
      ScoreKeys(request, team, result);
      return absl::OkStatus();
    case Scorer::kCritical:
      return ScoreCritical(request, team, result);
    case Scorer::kExpectedAttention:
      return ScoreExpected(request, team, result);
    case Scorer::kLagKv:
      ScoreLagKv(request, team, result);
      return absl::OkStatus();
    default:
      break;
  }
  if (request.input.source != AttentionSource::kColumnSums) {
    return ScoreQueries(request, team, result);
  }
  ScoreColumnSums(request, team, result);
  return absl::OkStatus();
}

}  // namespace

absl::Status ScoreLayer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  result = ScoreResult();
  KVTRIAGE_RETURN_IF_ERROR(CheckScoreInputs(request));
  KVTRIAGE_RETURN_IF_ERROR(ScoreSource(request, team, result));
  CountNonfinite(result);
  PoolLists(request, team, result);
  if (request.spec.scorer == Scorer::kCritical) FinishCritical(request.spec, result);
  return absl::OkStatus();
}

}  // namespace kvtriage
