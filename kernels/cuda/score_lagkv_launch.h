// What LagKV is started with (score_lagkv.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

// Rows [begin, begin + lag) of a list, measured with the `lag` rows behind them.
struct LagPartition {
  uint32_t list, begin, lag;
};

struct LagArgs {
  ListPlan plan;
  const LagPartition* partitions;
  uint32_t pitch;  // largest head size
  // One per row of all lists: 0, or NaN for bad rows; deviations of measured rows.
  float *bad, *of_keys, *of_values;
};

// Shared memory of a block that measures: extremes of every channel.
inline constexpr size_t LagSharedBytes(size_t pitch) { return 2 * pitch * sizeof(float); }

// Two launches: bad rows, then deviations (none without partitions).
cudaError_t LaunchLagDeviations(const LagArgs& args, uint32_t pieces, uint32_t partitions,
                                cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_LAUNCH_H_
