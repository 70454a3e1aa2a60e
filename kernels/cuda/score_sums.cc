#include "kernels/cuda/score_sums.h"

#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/score_sums_launch.h"

namespace kvtriage {
namespace {

SumsReduce ReduceOf(Reduce reduce) {
  if (reduce == Reduce::kSum) return SumsReduce::kSum;
  return reduce == Reduce::kMax ? SumsReduce::kMax : SumsReduce::kMean;
}

uint32_t ListsOf(const ScoreRequest& request) {
  return request.input.sums_axis == HeadAxis::kSummed ? 1 : request.layer.k.layout.heads;
}

// The lists of all requests, and how many rows each has.
std::vector<SumsList> MakeLists(ScoreRequests requests, std::vector<uint32_t>& rows) {
  std::vector<SumsList> lists;
  uint64_t first = 0;
  for (const ScoreRequest* request : requests) {
    const bool per_query = request->input.sums_axis == HeadAxis::kQuery;
    SumsList list{.sums = OnDevice(request->input.sums),
                  .group = per_query ? request->layer.q_heads / request->layer.k.layout.heads : 1,
                  .rows = request->layer.sequence.rows,
                  .reduce = ReduceOf(request->spec.reduce)};
    for (uint32_t i = 0; i < ListsOf(*request); ++i) {
      list.first_head = i * list.group;
      list.first = first;
      lists.push_back(list);
      rows.push_back(list.rows);
      first += list.rows;
    }
  }
  return lists;
}

absl::Status WeighByMagnitude(ScoreRequests requests, const SumsArgs& args, Workspace& workspace) {
  DeviceInputs inputs(workspace);
  KVTRIAGE_ASSIGN_OR_RETURN(const ScoreLists lists,
                            ScoreLists::Make(requests, true, workspace, inputs));
  return CudaStatus(LaunchWeighByMagnitude(lists.plan(), lists.pieces(), args.scores, args.mass,
                                           workspace.stream()),
                    "score_sums.launch");
}

}  // namespace

absl::Status CudaScoreSums(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  std::vector<uint32_t> rows;
  const std::vector<SumsList> lists = MakeLists(requests, rows);
  const uint64_t numbers = lists.empty() ? 0 : lists.back().first + lists.back().rows;
  SumsArgs args{};
  KVTRIAGE_ASSIGN_OR_RETURN(args.lists, workspace.Upload(std::span<const SumsList>(lists)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.pieces, CutIntoPieces(rows, kPieceRows, workspace));
  KVTRIAGE_ASSIGN_OR_RETURN(args.scores, workspace.Take<float>(numbers));
  KVTRIAGE_ASSIGN_OR_RETURN(args.mass, workspace.Take<float>(numbers));
  if (numbers > 0) {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchReduceSums(args, CountPieces(rows, kPieceRows), workspace.stream()),
        "score_sums.launch");
    if (requests[0]->spec.scorer == Scorer::kVatp) {
      KVTRIAGE_RETURN_IF_ERROR(WeighByMagnitude(requests, args, workspace));
    }
  }
  uint64_t first = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ScoreResult& result = *results[i];
    result.lists = ListsOf(*requests[i]);
    result.usable_rows.assign(result.lists, 0);
    const uint64_t count = uint64_t{result.lists} * requests[i]->layer.sequence.rows;
    result.scores.resize(count);
    result.mass.resize(count);
    KVTRIAGE_RETURN_IF_ERROR(workspace.Download<float>(args.scores + first, result.scores));
    KVTRIAGE_RETURN_IF_ERROR(workspace.Download<float>(args.mass + first, result.mass));
    first += count;
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
