#include "kernels/cpu/score.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/score_queries.h"
#include "kernels/cpu/score_sums.h"

namespace kvtriage {
namespace {

void PoolLists(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  const ScoreSpec& spec = request.spec;
  if (spec.pool == Pool::kNone || spec.pool_kernel <= 1) return;
  const size_t tokens = request.layer.sequence.rows;
  const size_t end = std::min<size_t>(request.pool_end, tokens);
  std::vector<std::vector<float>> scratch(static_cast<size_t>(team.threads()));
  team.Run(result.lists, [&](size_t list, int worker) {
    PoolScores(spec.pool, spec.pool_kernel, {result.scores.data() + list * tokens, end},
               scratch[static_cast<size_t>(worker)]);
  });
}

absl::Status ScoreSource(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  const Scorer scorer = request.spec.scorer;
  if (scorer == Scorer::kRecency || scorer == Scorer::kRandom) {
    ScoreWithoutCache(request, team, result);
    return absl::OkStatus();
  }
  switch (request.input.source) {
    case AttentionSource::kQuery:
    case AttentionSource::kQueryOutput:
    case AttentionSource::kReady:
      return ScoreQueries(request, team, result);
    case AttentionSource::kColumnSums:
      return ScoreColumnSums(request, team, result);
    case AttentionSource::kNone:
      break;
  }
  return Error(ErrorReason::kPolicyInvalid, "policy.scorer", "this scorer needs queries");
}

}  // namespace

bool ReadsValues(Scorer scorer) {
  switch (scorer) {
    case Scorer::kObcValue:
    case Scorer::kObcKey:
    case Scorer::kObcJoint:
    case Scorer::kDrop:
    case Scorer::kVatp:
      return true;
    case Scorer::kAttention:
    case Scorer::kRecency:
    case Scorer::kRandom:
      break;
  }
  return false;
}

bool NeedsOutputs(Scorer scorer) {
  return scorer == Scorer::kObcKey || scorer == Scorer::kObcJoint || scorer == Scorer::kDrop;
}

absl::Status ScoreLayer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  result = ScoreResult();
  const absl::Status scored = ScoreSource(request, team, result);
  if (!scored.ok()) return scored;
  result.nonfinite_tokens = static_cast<uint32_t>(std::count_if(
      result.scores.begin(), result.scores.end(), [](float score) { return std::isnan(score); }));
  PoolLists(request, team, result);
  return absl::OkStatus();
}

}  // namespace kvtriage
