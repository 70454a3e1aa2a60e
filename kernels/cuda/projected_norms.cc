#include "kernels/cuda/projected_norms.h"

#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/projected_norms_launch.h"

namespace kvtriage {
namespace {

ProjectPath PathOf(const ScoreRequest& request) {
  const KvView& values = request.layer.v;
  const TensorView& weights = request.input.output_projection;
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(weights.base), weights.row_stride,
                              weights.head_stride};
  const uint32_t elems = values.layout.row_elems;
  if (!WideRows(values) || weights.dtype != values.layout.dtype || weights.elem_stride != 2 ||
      AccessWidth(numbers) != 16 || elems > 128) {
    return ProjectPath::kFloats;
  }
  if (weights.dtype == DType::kF16) {
    return elems <= 64 ? ProjectPath::kF16By64 : ProjectPath::kF16By128;
  }
  return elems <= 64 ? ProjectPath::kBF16By64 : ProjectPath::kBF16By128;
}

std::vector<ListProjection> ProjectionsOf(ScoreRequests requests) {
  std::vector<ListProjection> projections;
  for (const ScoreRequest* request : requests) {
    const TensorView& weights = request->input.output_projection;
    const uint32_t heads = request->layer.k.layout.heads;
    ListProjection projection{.weights = OnDevice(weights),
                              .hidden = weights.rows,
                              .group = request->layer.q_heads / heads};
    for (uint32_t head = 0; head < heads; ++head) {
      projection.first_head = head * projection.group;
      projections.push_back(projection);
    }
  }
  return projections;
}

// Rows of the lists that go by `path`; the others have none.
std::vector<uint32_t> RowsOf(ScoreRequests requests, ProjectPath path) {
  std::vector<uint32_t> rows;
  for (const ScoreRequest* request : requests) {
    const uint32_t count = PathOf(*request) == path ? request->layer.sequence.rows : 0;
    rows.insert(rows.end(), request->layer.k.layout.heads, count);
  }
  return rows;
}

}  // namespace

absl::Status CudaProjectValues(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  DeviceInputs inputs(workspace);
  KVTRIAGE_ASSIGN_OR_RETURN(const ScoreLists lists,
                            ScoreLists::Make(requests, true, workspace, inputs));
  const std::vector<ListProjection> projections = ProjectionsOf(requests);
  ProjectArgs args{.lists = lists.plan().lists};
  KVTRIAGE_ASSIGN_OR_RETURN(args.projections,
                            workspace.Upload(std::span<const ListProjection>(projections)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.norms, workspace.Take<float>(lists.rows()));
  for (const ProjectPath path : kProjectPaths) {
    const std::vector<uint32_t> rows = RowsOf(requests, path);
    const uint32_t pieces = CountPieces(rows, PieceTokens(path));
    if (pieces == 0) continue;
    KVTRIAGE_ASSIGN_OR_RETURN(args.pieces, CutIntoPieces(rows, PieceTokens(path), workspace));
    KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchProjectValues(path, args, pieces, workspace.stream()),
                                  "projected_norms.launch");
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.norms, i, workspace, results[i]->second_scores));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
