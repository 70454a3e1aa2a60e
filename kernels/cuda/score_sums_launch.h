// What scoring from ready-made column sums is started with (score_sums.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

enum class SumsReduce : uint32_t { kSum, kMean, kMax };

// The sums of one list: heads [first_head, first_head + group) of `sums` [1, heads, rows].
struct SumsList {
  DeviceTensor sums;
  uint32_t first_head, group, rows;
  SumsReduce reduce;
  uint64_t first;  // place of row 0 in `scores` and `mass`
};

struct SumsArgs {
  const SumsList* lists;
  const ListPiece* pieces;
  float* scores;  // [rows of all lists]
  float* mass;    // sums over the group; 0 where they are NaN
};

cudaError_t LaunchReduceSums(const SumsArgs& args, uint32_t pieces, cudaStream_t stream);

// scores *= |v|_1; NaN for bad rows, whose mass becomes 0. `plan` cuts the same rows.
cudaError_t LaunchWeighByMagnitude(const ListPlan& plan, uint32_t pieces, float* scores,
                                   float* mass, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_SUMS_LAUNCH_H_
