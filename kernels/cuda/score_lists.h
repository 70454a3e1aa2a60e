// Makes the lists of a call (score_lists_launch.h), and brings their numbers back.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/score_lists_launch.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// A request does not outlive the lane's call, so neither do these pointers.
using ScoreRequests = std::span<const ScoreRequest* const>;
using ScoreResults = std::span<ScoreResult* const>;

// The pieces of lists with so many rows, `piece_rows` each, on the device, list by list.
absl::StatusOr<const ListPiece*> CutIntoPieces(std::span<const uint32_t> rows, uint32_t piece_rows,
                                               Workspace& workspace);

uint32_t CountPieces(std::span<const uint32_t> rows, uint32_t piece_rows);

class ScoreLists {
 public:
  // `values`: the lists read V. DEVICE_MEMORY when the workspace is too small.
  static absl::StatusOr<ScoreLists> Make(ScoreRequests requests, bool values, Workspace& workspace,
                                         DeviceInputs& inputs);

  const ListPlan& plan() const { return plan_; }
  uint32_t lists() const { return lists_; }
  uint32_t pieces() const { return pieces_; }
  uint64_t rows() const { return rows_; }              // of all lists together
  uint32_t most_elems() const { return most_elems_; }  // largest head size of K or V

  // Copies the numbers of all lists of request `i`, [KV heads, N], out of `numbers` [rows()].
  absl::Status Download(const float* numbers, size_t i, Workspace& workspace,
                        std::vector<float>& to) const;

 private:
  ListPlan plan_{};
  uint32_t lists_ = 0, pieces_ = 0, most_elems_ = 0;
  uint64_t rows_ = 0;
  std::vector<uint64_t> first_;  // row of every request; then their number
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_H_
