// What scoring by keys alone is started with (score_keys.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

inline constexpr uint32_t kUnitTile = 32;  // rows that lie in shared memory

struct KeyArgs {
  ListPlan plan;
  uint32_t pitch;  // elements from one sum or mean to the next
  float* scores;   // [rows of all lists]
  // kKeyDiff only: sums of unit keys and numbers of good rows, [pieces]; mean and its norm, [lists]
  float* sums;
  uint32_t* good;
  float* means;
  float* norms;
};

// Shared memory of a block that adds up unit keys: sums of channels, a tile of rows.
inline constexpr size_t UnitSharedBytes(size_t pitch) {
  return pitch * sizeof(double) + kUnitTile * 16;
}

cudaError_t LaunchKeyNorms(const KeyArgs& args, uint32_t pieces, cudaStream_t stream);
// Three launches: sums, means, distances.
cudaError_t LaunchKeyDistances(const KeyArgs& args, uint32_t lists, uint32_t pieces,
                               cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_KEYS_LAUNCH_H_
