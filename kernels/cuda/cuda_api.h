// The CUDA runtime and driver calls that we use: the toolkit's headers where the build has a
// toolkit and means to link it, else our own declarations of the same calls.
#ifndef KVTRIAGE_KERNELS_CUDA_CUDA_API_H_
#define KVTRIAGE_KERNELS_CUDA_CUDA_API_H_

#if defined(__CUDACC__) || defined(KVTRIAGE_CUDA_TOOLKIT)
#include <cuda.h>
#include <cuda_runtime_api.h>
#else
#include "kernels/cuda/cuda_declarations.h"
#endif

#endif  // KVTRIAGE_KERNELS_CUDA_CUDA_API_H_
