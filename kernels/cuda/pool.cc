#include "kernels/cuda/pool.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/pool_launch.h"

namespace kvtriage {
namespace {

// Rows of a list that are pooled.
uint32_t PooledRows(const ScoreRequest& request, uint32_t list) {
  const uint32_t asked = request.pool_ends.empty() ? request.pool_end : request.pool_ends[list];
  return std::min(asked, request.layer.sequence.rows);
}

}  // namespace

bool Pools(const ScoreSpec& spec) { return spec.pool != Pool::kNone && spec.pool_kernel > 1; }

absl::Status CudaPoolScores(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  std::vector<PoolList> lists;
  std::vector<uint32_t> rows;
  std::vector<std::span<float>> scores;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ScoreRequest& request = *requests[i];
    const uint64_t tokens = request.layer.sequence.rows;
    for (uint32_t list = 0; list < results[i]->lists; ++list) {
      const uint32_t count = PooledRows(request, list);
      if (count == 0) continue;
      scores.emplace_back(results[i]->scores.data() + list * tokens, count);
      rows.push_back(count);
      PoolList made{.rows = count,
                    .kernel = request.spec.pool_kernel,
                    .average = request.spec.pool == Pool::kAvg ? 1u : 0u};
      KVTRIAGE_ASSIGN_OR_RETURN(made.scores, workspace.Upload(scores.back()));
      KVTRIAGE_ASSIGN_OR_RETURN(made.pooled, workspace.Take<float>(count));
      lists.push_back(made);
    }
  }
  if (lists.empty()) return absl::OkStatus();
  KVTRIAGE_ASSIGN_OR_RETURN(const PoolList* on_device,
                            workspace.Upload(std::span<const PoolList>(lists)));
  KVTRIAGE_ASSIGN_OR_RETURN(const ListPiece* pieces, CutIntoPieces(rows, kPieceRows, workspace));
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      LaunchPool(on_device, pieces, CountPieces(rows, kPieceRows), workspace.stream()),
      "pool.launch");
  for (size_t i = 0; i < lists.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(workspace.Download<float>(lists[i].pooled, scores[i]));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
