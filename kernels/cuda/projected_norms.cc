#include "kernels/cuda/projected_norms.h"

#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/product_tile.h"
#include "kernels/cuda/projected_norms_launch.h"

namespace kvtriage {

absl::Status CudaProjectValues(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  DeviceInputs inputs(workspace);
  KVTRIAGE_ASSIGN_OR_RETURN(const ScoreLists lists,
                            ScoreLists::Make(requests, true, workspace, inputs));
  std::vector<ListProjection> projections;
  std::vector<uint32_t> rows;
  for (const ScoreRequest* request : requests) {
    const LayerRows& layer = request->layer;
    const TensorView& weights = request->input.output_projection;
    ListProjection projection{.weights = OnDevice(weights),
                              .hidden = weights.rows,
                              .group = layer.q_heads / layer.k.layout.heads};
    for (uint32_t head = 0; head < layer.k.layout.heads; ++head) {
      projection.first_head = head * projection.group;
      projections.push_back(projection);
      rows.push_back(layer.sequence.rows);
    }
  }
  ProjectArgs args{.lists = lists.plan().lists};
  KVTRIAGE_ASSIGN_OR_RETURN(args.projections,
                            workspace.Upload(std::span<const ListProjection>(projections)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.pieces, CutIntoPieces(rows, kProductTile, workspace));
  KVTRIAGE_ASSIGN_OR_RETURN(args.norms, workspace.Take<float>(lists.rows()));
  if (lists.rows() > 0) {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchProjectValues(args, CountPieces(rows, kProductTile), workspace.stream()),
        "projected_norms.launch");
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.norms, i, workspace, results[i]->second_scores));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
