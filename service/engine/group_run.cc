#include "service/engine/group_run.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/group_table.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

std::vector<absl::Status> FailedBy(size_t culprit, const absl::Status& status, size_t ranks) {
  std::vector<absl::Status> all(
      ranks,
      Error(ErrorReason::kGroupMismatch, "group", "another rank's call failed").Index(culprit));
  all[culprit] = status;
  return all;
}

absl::Status Join(const std::vector<std::unique_ptr<Job>>& ranks) {
  std::vector<RankSums> sums;
  for (const std::unique_ptr<Job>& rank : ranks) sums.push_back(rank->part->Sums());
  if (sums.front().arrays.empty()) return absl::OkStatus();
  KVTRIAGE_RETURN_IF_ERROR(CheckRankHeads(sums, GroupOf(*ranks.front())->total_kv_heads));
  JoinRanks(sums);
  return absl::OkStatus();
}

}  // namespace

std::vector<absl::Status> RunGroup(const std::vector<std::unique_ptr<Job>>& ranks,
                                   const std::function<absl::Status(const Job&)>& wanted) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (const absl::Status status = wanted(*ranks[i]); !status.ok()) {
      return FailedBy(i, status, ranks.size());
    }
  }
  if (const absl::Status status = Join(ranks); !status.ok()) return {ranks.size(), status};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (const absl::Status status = ranks[i]->part->Decide(); !status.ok()) {
      return FailedBy(i, status, ranks.size());
    }
  }
  FaultPoint("group.decided");
  for (const std::unique_ptr<Job>& rank : ranks) rank->part->Begin();
  std::vector<absl::Status> statuses;
  for (const std::unique_ptr<Job>& rank : ranks) statuses.push_back(rank->part->Apply());
  return statuses;
}

}  // namespace kvtriage
