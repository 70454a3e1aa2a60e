// How an emulated grid gets onto a stream: whoever stands in for the CUDA runtime defines this.
#ifndef KVTRIAGE_KERNELS_EMULATION_LAUNCH_H_
#define KVTRIAGE_KERNELS_EMULATION_LAUNCH_H_

#include <functional>

#include "kernels/cuda/cuda_api.h"
#include "kernels/emulation/emulation.h"

namespace kvtriage::emulation {

// Runs `thread` as every thread of the grid, after what is in the stream. `kernel` names the kernel
// (cudaFuncSetAttribute).
cudaError_t EnqueueGrid(const void* kernel, const GridShape& shape, cudaStream_t stream,
                        std::function<void()> thread);

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_LAUNCH_H_
