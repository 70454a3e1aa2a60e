// What a rotation is started with (rotate.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_ROTATE_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_ROTATE_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/device_view.h"

namespace kvtriage {

inline constexpr uint32_t kRotateThreads = 128;
inline constexpr uint32_t kRotateRows = 8;  // of a block

// Position of row i: first + i, or list[plane * rows + i].
struct DevicePositions {
  uint64_t first;
  const int32_t* list;
  uint32_t rows;
};

struct RotateArgs {
  const DeviceView* layers;  // [layers]
  uint32_t first_row, count;
  uint32_t half;  // 1: channel j pairs with j + R/2; 0: 2j with 2j + 1
  uint32_t pairs, offset;
  uint32_t exact;            // 1: (to - from) * f; 0: fl32(to * f) - fl32(from * f)
  const double* speeds;      // [pairs]
  uint32_t section_ends[3];  // first pair that does not take its position from plane 0, 1, 2
  DevicePositions from, to;
  const int32_t* const* from_rows;  // [layers * heads] lists of `count`, or null
};

// Shared memory: cosines and sines [rows][pairs], then whether each row turns.
inline constexpr size_t RotateSharedBytes(size_t pairs) {
  return kRotateRows * (2 * pairs + 1) * sizeof(float);
}

// `lists`: layers, or layers * heads where args has lists.
cudaError_t LaunchRotate(const RotateArgs& args, uint32_t lists, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROTATE_LAUNCH_H_
