// Nothing but matrix instructions: what `mma.sync` can reach on a device.
#ifndef KVTRIAGE_TESTS_GPU_MMA_CHAIN_H_
#define KVTRIAGE_TESTS_GPU_MMA_CHAIN_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::gpu {

inline constexpr uint32_t kChainThreads = 256;
inline constexpr uint32_t kChains = 8;  // independent sums of a warp, so that none waits for itself

// 16 x 8 x 16 products and sums of an instruction.
inline constexpr double ChainFlops(uint32_t blocks, uint32_t rounds) {
  return 2.0 * 16 * 8 * 16 * kChains * (kChainThreads / 32) * blocks * rounds;
}

// `out`: one float per block.
cudaError_t LaunchMmaChain(float* out, uint32_t blocks, uint32_t rounds, cudaStream_t stream);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_MMA_CHAIN_H_
