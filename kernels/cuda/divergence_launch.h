// What a divergence is started with (divergence.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_DIVERGENCE_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_DIVERGENCE_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/device_view.h"

namespace kvtriage {

inline constexpr uint32_t kDivergenceThreads = 128;

struct DivergenceArgs {
  DeviceView fresh, cached;
  uint32_t fresh_first, cached_first;  // absolute row of each side's row 0
  const int32_t* rows;                 // [count] absolute rows
  uint32_t count;
  float* divergence;  // [count]; kApart: sums of squared differences
  float* old;         // [count] sums of squares of the cached rows; kApart only
};

// What is made of a row's sums.
enum class DivergenceForm : uint8_t { kL2, kRelative, kApart };

cudaError_t LaunchDivergence(const DivergenceArgs& args, DivergenceForm form, bool wide,
                             cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DIVERGENCE_LAUNCH_H_
