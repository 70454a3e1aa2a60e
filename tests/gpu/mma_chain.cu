#include "tests/gpu/mma_chain.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage::gpu {
namespace {

SIMT_KERNEL void SIMT_BOUNDS(kChainThreads, 2) MmaChain(float* out, uint32_t rounds) {
  const uint32_t one = 0x3F803F80u;  // two bf16 ones
  const uint32_t a[4] = {one, one, one, one}, b[2] = {simt::ThreadX(), 0};
  float sums[kChains][4] = {};
  for (uint32_t round = 0; round < rounds; ++round) {
    SIMT_UNROLL
    for (uint32_t chain = 0; chain < kChains; ++chain) simt::MmaBf16(sums[chain], a, b);
  }
  float total = 0;
  SIMT_UNROLL
  for (uint32_t chain = 0; chain < kChains; ++chain) total += sums[chain][chain % 4];
  if (simt::ThreadX() == 0) simt::Store(out + simt::BlockX(), total);
}

}  // namespace

cudaError_t LaunchMmaChain(float* out, uint32_t blocks, uint32_t rounds, cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks_x = blocks;
  shape.threads = kChainThreads;
  return LaunchKernel(MmaChain, shape, stream, out, rounds);
}

}  // namespace kvtriage::gpu
