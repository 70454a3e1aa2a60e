// What pooling is started with (pool.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_POOL_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_POOL_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

// The pooled part of one list.
struct PoolList {
  const float* scores;  // [rows]
  float* pooled;        // [rows]
  uint32_t rows;
  uint32_t kernel;   // odd
  uint32_t average;  // 1: kAvg; 0: kMax
};

cudaError_t LaunchPool(const PoolList* lists, const ListPiece* pieces, uint32_t count,
                       cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_POOL_LAUNCH_H_
