#include "kernels/cuda/launch.h"
#include "kernels/cuda/pool.cuh"

namespace kvtriage {

cudaError_t LaunchPool(const PoolList* lists, const ListPiece* pieces, uint32_t count,
                       cudaStream_t stream) {
  return LaunchKernel(PoolKernel, {.blocks_x = count, .threads = kListThreads}, stream, lists,
                      pieces);
}

}  // namespace kvtriage
