// Moments of the queries of a call on a device, one list per query head: found there, or brought by
// the request.
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_H_
#define KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/expected_rules.h"
#include "kernels/cuda/query_moments_launch.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

class DeviceMoments {
 public:
  // Takes the memory for all query heads of every request: input.query_mean and query_covariance,
  // or input.q with a query of every row, of which those behind the sinks count. Requests whose
  // rows are all sinks have no heads. DEVICE_MEMORY when the workspace is too small.
  static absl::StatusOr<DeviceMoments> Make(ScoreRequests requests, Workspace& workspace);

  uint32_t lists() const { return static_cast<uint32_t>(lists_.size()); }
  // Heads of request `i` are the lists from here on.
  uint32_t first_list(size_t i) const { return first_list_[i]; }

  // One launch per stage for all heads.
  absl::Status Run(Workspace& workspace) const;
  // Waits for them.
  absl::Status Download(uint32_t list, Workspace& workspace, QueryMoments& moments) const;
  // Where the covariance of a list lies, [dk][dk]; free for other numbers once it is downloaded.
  float* covariance(uint32_t list) const { return args_.covariances + lists_[list].covariance; }

 private:
  // Adds the heads of one request.
  void AddHeads(const ScoreRequest& request);
  std::vector<CovarianceTile> Tiles() const;

  MomentArgs args_{};
  std::vector<QueryList> lists_;
  std::vector<uint32_t> first_list_;
  uint32_t pieces_ = 0, tiles_ = 0, given_ = 0;
  uint64_t rows_ = 0, means_ = 0, covariances_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_H_
