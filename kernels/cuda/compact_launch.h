// Between the host's plan of a compaction and the kernel: what both compilers see.
#ifndef KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/compact.cuh"
#include "kernels/cuda/cuda_api.h"

namespace kvtriage {

// Starts the kernel for words of 1, 2, 4, 8 or 16 bytes with `blocks` blocks.
cudaError_t LaunchCompact(const CompactArgs& args, uint32_t word_bytes, uint32_t blocks,
                          cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_COMPACT_LAUNCH_H_
