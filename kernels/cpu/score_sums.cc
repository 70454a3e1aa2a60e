#include "kernels/cpu/score_sums.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/dtype.h"
#include "kernels/core/score_rules.h"
#include "kernels/cpu/score_tokens.h"

namespace kvtriage {
namespace {

// Reduces the columns of one list: `scores` over its query heads as asked, `mass` always their sum.
void ReduceColumns(const ScoreRequest& request, uint32_t list, float* scores, float* mass) {
  const TensorView& sums = request.input.sums;
  const uint64_t tokens = request.layer.sequence.rows;
  const bool per_query = request.input.sums_axis == HeadAxis::kQuery;
  const uint32_t group = per_query ? request.layer.q_heads / request.layer.k.layout.heads : 1;
  const Reduce reduce = request.spec.reduce;
  for (uint64_t p = 0; p < tokens; ++p) {
    float sum = 0.0f, largest = 0.0f;
    for (uint32_t h = 0; h < group; ++h) {
      const float x = LoadElement(sums.At(0, list * group + h, p), sums.dtype);
      sum += x;
      // A NaN of any head makes the maximum NaN, as it does the sum.
      largest =
          h == 0 || x > largest || std::isnan(x) ? (std::isnan(largest) ? largest : x) : largest;
    }
    mass[p] = std::isnan(sum) ? 0.0f : sum;
    switch (reduce) {
      case Reduce::kMax:
        scores[p] = largest;
        break;
      case Reduce::kSum:
        scores[p] = sum;
        break;
      default:
        scores[p] = sum / static_cast<float>(group);
    }
  }
}

}  // namespace

void ScoreColumnSums(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  const Scorer scorer = request.spec.scorer;
  const bool summed = request.input.sums_axis == HeadAxis::kSummed;
  const uint64_t tokens = request.layer.sequence.rows;
  result.lists = summed ? 1 : request.layer.k.layout.heads;
  result.scores.resize(result.lists * tokens);
  result.mass.resize(result.lists * tokens);
  result.usable_rows.assign(result.lists, 0);
  std::vector<ScoreScratch> scratch(static_cast<size_t>(team.threads()));
  team.Run(result.lists, [&](size_t list, int worker) {
    float* const scores = result.scores.data() + list * tokens;
    float* const mass = result.mass.data() + list * tokens;
    ReduceColumns(request, static_cast<uint32_t>(list), scores, mass);
    if (scorer != Scorer::kVatp) return;
    std::vector<float> magnitudes(tokens);
    SumMagnitudes(request.layer, static_cast<uint32_t>(list), 0, tokens,
                  scratch[static_cast<size_t>(worker)], magnitudes.data());
    for (uint64_t p = 0; p < tokens; ++p) {
      scores[p] *= magnitudes[p];
      if (std::isnan(magnitudes[p])) mass[p] = 0.0f;
    }
  });
}

void ScoreWithoutCache(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  const uint64_t tokens = request.layer.sequence.rows;
  const uint64_t heads = request.layer.k.layout.heads;
  result.lists = static_cast<uint32_t>(heads);
  result.scores.resize(heads * tokens);
  result.mass.clear();
  result.usable_rows.assign(heads, 0);
  team.Run(heads, [&](size_t head, int) {
    ScoreByNumber(request, head, {result.scores.data() + head * tokens, tokens});
  });
}

}  // namespace kvtriage
