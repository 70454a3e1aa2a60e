// Rows of one head of a view, as kernels find them. POD: made by the host, copied into plans. All
// addresses are of the device; 64-bit arithmetic throughout, no checks (views.h).
#ifndef KVTRIAGE_KERNELS_CUDA_DEVICE_ROWS_CUH_
#define KVTRIAGE_KERNELS_CUDA_DEVICE_ROWS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.h"

namespace kvtriage {

struct DeviceRows {
  std::byte* head;        // (block 0, slot 0, element 0) of the head
  uint64_t block_stride;  // bytes
  uint64_t slot_stride;
  uint64_t elem_stride;
  const int32_t* table;  // block ids
  uint32_t block_slots;
  uint32_t first_slot;
};

// Element 0 of row `row`.
SIMT_DEVICE std::byte* RowAt(const DeviceRows& rows, uint64_t row) {
  const uint64_t slot = rows.first_slot + row;
  const uint64_t in_table = slot / rows.block_slots;
  const auto block =
      static_cast<uint64_t>(static_cast<uint32_t>(simt::Load(rows.table + in_table)));
  return rows.head + block * rows.block_stride +
         (slot - in_table * rows.block_slots) * rows.slot_stride;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DEVICE_ROWS_CUH_
