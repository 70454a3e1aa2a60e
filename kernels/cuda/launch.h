// Puts a kernel on a stream, with nvcc and with the emulator.
#ifndef KVTRIAGE_KERNELS_CUDA_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/simt.h"
#if !defined(__CUDACC__)
#include "kernels/emulation/launch.h"
#endif

namespace kvtriage {

struct LaunchShape {
  uint32_t blocks_x = 1, blocks_y = 1, blocks_z = 1;  // y and z at most 65,535
  uint32_t threads = 1;                               // per block
  size_t shared_bytes = 0;                            // dynamic, per block
};

// kernel(args...) as that grid on `stream`; args are copied. The calling thread has set the device.
template <class... Params>
cudaError_t LaunchKernel(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                         Params... args) {
  const void* name = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > 48 * 1024) {
    const cudaError_t allowed = cudaFuncSetAttribute(
        name, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (allowed != cudaSuccess) return allowed;
  }
#if defined(__CUDACC__)
  kernel<<<dim3(shape.blocks_x, shape.blocks_y, shape.blocks_z), shape.threads, shape.shared_bytes,
           stream>>>(args...);
  return cudaGetLastError();
#else
  return emulation::EnqueueGrid(name,
                                {.blocks_x = shape.blocks_x,
                                 .blocks_y = shape.blocks_y,
                                 .blocks_z = shape.blocks_z,
                                 .threads = shape.threads,
                                 .shared_bytes = shape.shared_bytes},
                                stream, [kernel, args...] { kernel(args...); });
#endif
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_LAUNCH_H_
