#include "kernels/cuda/score_critical.h"

#include "kernels/core/score_rules.h"
#include "kernels/cuda/projected_norms.h"
#include "kernels/cuda/score_queries.h"

namespace kvtriage {

absl::Status CudaScoreCritical(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  KVTRIAGE_RETURN_IF_ERROR(CudaScoreQueries(requests, workspace, results));
  for (size_t i = 0; i < requests.size(); ++i) AverageOverWindow(*requests[i], *results[i]);
  return CudaProjectValues(requests, workspace, results);
}

}  // namespace kvtriage
