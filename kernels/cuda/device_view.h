// Views as kernels get them: plain values, made by the host, copied into plans. All addresses are
// of the device; arithmetic on them is 64-bit and unchecked (kvtriage/kernels/views.h).
#ifndef KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_H_
#define KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace kvtriage {

// Rows of one head of one sequence.
struct DeviceRows {
  std::byte* head;        // (block 0, slot 0, element 0) of the head
  uint64_t block_stride;  // bytes
  uint64_t slot_stride;
  uint64_t elem_stride;
  const int32_t* table;  // block ids
  uint32_t block_slots;
  uint32_t first_slot;
};

// Elements of all heads.
struct DeviceView {
  DeviceRows rows;       // of head 0
  uint64_t head_stride;  // bytes
  DType dtype;
  uint32_t heads, row_elems;
  // fp8: one scale for all rows, or one per (block, head, slot).
  float scale;
  const std::byte* scales;  // null: `scale`
  uint64_t scale_block_stride, scale_head_stride, scale_slot_stride;
};

// A dense input of one layer; rows, heads and elements as TensorView (kvtriage/kernels/views.h).
struct DeviceTensor {
  const std::byte* base;                          // null: not given
  uint64_t row_stride, head_stride, elem_stride;  // bytes
  DType dtype;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_H_
