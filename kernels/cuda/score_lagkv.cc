#include "kernels/cuda/score_lagkv.h"

#include <vector>

#include "kernels/core/lag_ranks.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/score_lagkv_launch.h"

namespace kvtriage {
namespace {

uint64_t MeasuredOf(const ScoreRequest& request) {
  return MeasuredPartitions(request.layer.sequence.rows, request.sinks, request.spec.lag);
}

std::vector<LagPartition> PartitionsOf(ScoreRequests requests) {
  std::vector<LagPartition> partitions;
  uint32_t list = 0;
  for (const ScoreRequest* request : requests) {
    const uint32_t lag = request->spec.lag;
    const auto measured = static_cast<uint32_t>(MeasuredOf(*request));
    for (uint32_t head = 0; head < request->layer.k.layout.heads; ++head, ++list) {
      for (uint32_t i = 0; i < measured; ++i) {
        partitions.push_back({list, request->sinks + i * lag, lag});
      }
    }
  }
  return partitions;
}

// What came back for one request, [heads, N] each.
struct LagNumbers {
  std::vector<float> bad, of_keys, of_values;
};

void RankRows(const ScoreRequest& request, const LagNumbers& numbers, LagRankScratch& scratch,
              std::vector<float>& scores) {
  const uint64_t tokens = request.layer.sequence.rows, lag = request.spec.lag;
  const uint64_t measured = MeasuredOf(request);
  scores = numbers.bad;
  for (uint64_t first = 0; first < scores.size(); first += tokens) {
    AddLagDefaults(measured, {scores.data() + first, tokens});
    for (uint64_t i = 0; i < measured; ++i) {
      const uint64_t at = first + request.sinks + i * lag;
      RankLagPartition({numbers.of_keys.data() + at, lag}, {numbers.of_values.data() + at, lag},
                       {numbers.bad.data() + at, lag}, scratch, {scores.data() + at, lag});
    }
  }
}

}  // namespace

absl::Status CudaScoreLagKv(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  DeviceInputs inputs(workspace);
  KVTRIAGE_ASSIGN_OR_RETURN(const ScoreLists lists,
                            ScoreLists::Make(requests, true, workspace, inputs));
  const std::vector<LagPartition> partitions = PartitionsOf(requests);
  LagArgs args{.plan = lists.plan(), .most_elems = lists.most_elems()};
  KVTRIAGE_ASSIGN_OR_RETURN(args.partitions,
                            workspace.Upload(std::span<const LagPartition>(partitions)));
  for (float** numbers : {&args.bad, &args.of_keys, &args.of_values}) {
    KVTRIAGE_ASSIGN_OR_RETURN(*numbers, workspace.Take<float>(lists.rows()));
  }
  if (lists.pieces() > 0) {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchLagDeviations(args, lists.pieces(), static_cast<uint32_t>(partitions.size()),
                            workspace.stream()),
        "score_lagkv.launch");
  }
  LagRankScratch scratch;
  for (size_t i = 0; i < requests.size(); ++i) {
    LagNumbers numbers;
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.bad, i, workspace, numbers.bad));
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.of_keys, i, workspace, numbers.of_keys));
    KVTRIAGE_RETURN_IF_ERROR(lists.Download(args.of_values, i, workspace, numbers.of_values));
    results[i]->lists = requests[i]->layer.k.layout.heads;
    results[i]->usable_rows.assign(results[i]->lists, 0);
    RankRows(*requests[i], numbers, scratch, results[i]->scores);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
