// The launch call of nvcc's stubs, with an event before and after it.
#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/launch_clock.h"

namespace {

std::vector<std::pair<cudaEvent_t, cudaEvent_t>> launches;

cudaEvent_t Mark(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  kvtriage::gpu::Must(cudaEventCreateWithFlags(&event, 0), "cudaEventCreateWithFlags");
  kvtriage::gpu::Must(cudaEventRecord(event, stream), "cudaEventRecord");
  return event;
}

}  // namespace

// The call's name and first argument since CUDA 13 (CMakeLists.txt names the same one).
#if CUDART_VERSION >= 13000
#define KVTRIAGE_LAUNCH(prefix) prefix##___cudaLaunchKernel
using Kernel = cudaKernel_t;
#else
#define KVTRIAGE_LAUNCH(prefix) prefix##_cudaLaunchKernel
using Kernel = const void*;
#endif

extern "C" {

cudaError_t KVTRIAGE_LAUNCH(__real)(Kernel kernel, dim3 grid, dim3 block, void** args,
                                    size_t shared_bytes, cudaStream_t stream);
cudaError_t KVTRIAGE_LAUNCH(__wrap)(Kernel kernel, dim3 grid, dim3 block, void** args,
                                    size_t shared_bytes, cudaStream_t stream) {
  const cudaEvent_t start = Mark(stream);
  const cudaError_t error =
      KVTRIAGE_LAUNCH(__real)(kernel, grid, block, args, shared_bytes, stream);
  launches.emplace_back(start, Mark(stream));
  return error;
}

}  // extern "C"

namespace kvtriage::gpu {

bool TimesLaunches() { return true; }

double TakeLaunchSeconds() {
  double seconds = 0;
  for (const auto& [start, end] : launches) {
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    seconds += double{ms} * 1e-3;
    cudaEventDestroy(start);
    cudaEventDestroy(end);
  }
  launches.clear();
  return seconds;
}

}  // namespace kvtriage::gpu
