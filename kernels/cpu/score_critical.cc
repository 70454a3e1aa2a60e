#include "kernels/cpu/score_critical.h"

#include <algorithm>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/score_rules.h"
#include "kernels/core/status_macros.h"
#include "kernels/cpu/projected_norms.h"
#include "kernels/cpu/score_queries.h"

namespace kvtriage {
namespace {

// Values of so many rows are unpacked once for all of W_O.
constexpr uint64_t kRangeTokens = 1024;

// n of every row, [heads, N].
void ProjectValues(const ScoreRequest& request, ThreadTeam& team, std::vector<float>& norms) {
  const uint64_t tokens = request.layer.sequence.rows, heads = request.layer.k.layout.heads;
  const uint64_t ranges = CeilDiv(tokens, kRangeTokens);
  norms.resize(heads * tokens);
  std::vector<ProjectScratch> scratch(static_cast<size_t>(team.threads()));
  team.Run(heads * ranges, [&](size_t item, int worker) {
    const auto head = static_cast<uint32_t>(item / ranges);
    const uint64_t begin = item % ranges * kRangeTokens;
    const uint64_t end = std::min(tokens, begin + kRangeTokens);
    ProjectedNorms(request.layer, request.input.output_projection, head, begin, end,
                   scratch[static_cast<size_t>(worker)], norms.data() + head * tokens + begin);
  });
}

}  // namespace

absl::Status ScoreCritical(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  KVTRIAGE_RETURN_IF_ERROR(ScoreQueries(request, team, result));
  AverageOverWindow(request, result);
  ProjectValues(request, team, result.second_scores);
  return absl::OkStatus();
}

}  // namespace kvtriage
