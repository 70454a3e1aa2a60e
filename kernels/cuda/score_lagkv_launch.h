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
  uint32_t most_elems;  // largest head size
  // One per row of all lists: 0, or NaN for bad rows; deviations of measured rows.
  float *bad, *of_keys, *of_values;
};

// Floats from one element of a piece of 8 to the next, where extremes lie by pieces: neither the
// threads that have a piece each nor those that have a channel each meet in a bank.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t ExtremePitch(uint32_t elems) {
  return ((elems + 7) / 8 + 27) / 32 * 32 + 4;
}

inline constexpr uint32_t kLagTile = 32;  // rows whose places are in shared memory

// Shared memory of a block that measures: extremes of every channel, places of rows.
inline constexpr size_t LagSharedBytes(uint32_t elems) {
  return size_t{2} * 8 * ExtremePitch(elems) * sizeof(float) + kLagTile * 16;
}

// Two launches: bad rows, then deviations (none without partitions).
cudaError_t LaunchLagDeviations(const LagArgs& args, uint32_t pieces, uint32_t partitions,
                                cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAGKV_LAUNCH_H_
