#include "kernels/cuda/score_keys.h"

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/score_keys_launch.h"

namespace kvtriage {
namespace {

absl::Status Distances(const ScoreLists& lists, KeyArgs args, Workspace& workspace) {
  KVTRIAGE_ASSIGN_OR_RETURN(args.sums,
                            workspace.Take<float>(uint64_t{lists.pieces()} * args.pitch));
  KVTRIAGE_ASSIGN_OR_RETURN(args.good, workspace.Take<uint32_t>(lists.pieces()));
  KVTRIAGE_ASSIGN_OR_RETURN(args.means,
                            workspace.Take<float>(uint64_t{lists.lists()} * args.pitch));
  KVTRIAGE_ASSIGN_OR_RETURN(args.norms, workspace.Take<float>(lists.lists()));
  return CudaStatus(LaunchKeyDistances(args, lists.lists(), lists.pieces(), workspace.stream()),
                    "score_keys.launch");
}

}  // namespace

absl::Status CudaScoreKeys(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  DeviceInputs inputs(workspace);
  KVTRIAGE_ASSIGN_OR_RETURN(const ScoreLists lists,
                            ScoreLists::Make(requests, false, workspace, inputs));
  KeyArgs args{.plan = lists.plan(), .pitch = lists.most_elems()};
  KVTRIAGE_ASSIGN_OR_RETURN(args.scores, workspace.Take<float>(lists.rows()));
  if (lists.pieces() > 0 && requests[0]->spec.scorer == Scorer::kKeyNorm) {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchKeyNorms(args, lists.pieces(), workspace.stream()),
                                  "score_keys.launch");
  } else if (lists.pieces() > 0) {
    KVTRIAGE_RETURN_IF_ERROR(Distances(lists, args, workspace));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i]->lists = requests[i]->layer.k.layout.heads;
    results[i]->usable_rows.assign(results[i]->lists, 0);
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.scores, i, workspace, results[i]->scores));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
