// How kernels find rows. Everything is byte strides; nothing is a layout name. Views are small
// values without ownership: the caller keeps the memory mapped for the length of a call. All checks
// (ranges, nesting, overlap, block ids) were made before a view reaches a kernel; kernels do 64-bit
// address arithmetic and no checks.
#ifndef KVTRIAGE_KERNELS_VIEWS_H_
#define KVTRIAGE_KERNELS_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/core/dtype.h"

namespace kvtriage {

// Shape of K or V of one layer.
// addr(block, head, slot, elem) = base + block*block_stride + head*head_stride + slot*slot_stride +
// elem*elem_stride
struct ViewLayout {
  uint64_t block_stride = 0;  // bytes
  uint64_t head_stride = 0;   // bytes
  uint64_t slot_stride = 0;   // bytes
  uint64_t elem_stride = 0;   // bytes; ElementBytes(dtype) when a row is contiguous; 0 when opaque
  uint32_t num_blocks = 0;    // legal block ids are 0 .. num_blocks-1
  uint32_t block_slots = 0;   // rows per block
  uint32_t heads = 0;         // KV heads
  uint32_t row_elems = 0;     // head size (dk or dv); 0 when opaque
  uint32_t opaque_row_bytes = 0;  // > 0: a contiguous row of unknown encoding; dtype does not apply
  DType dtype = DType::kF32;
  float scale = 1.0f;  // fp8 rows: what the code of 1 stands for, where rows have no scales

  bool opaque() const { return opaque_row_bytes != 0; }
  bool contiguous_rows() const { return opaque() || elem_stride == ElementBytes(dtype); }
  uint64_t row_bytes() const {
    return opaque() ? opaque_row_bytes : uint64_t{row_elems} * ElementBytes(dtype);
  }
};

// Scales of fp8 rows, float32, one per (block, head, slot). They move with their rows.
struct RowScales {
  const std::byte* base = nullptr;  // null: the layout's scale holds for all rows
  uint64_t block_stride = 0, head_stride = 0, slot_stride = 0;  // bytes
};

struct KvView {
  std::byte* base = nullptr;  // address of (block 0, head 0, slot 0, elem 0); read-only memory
                              // unless it is a destination
  ViewLayout layout;
  RowScales scales;
};

// The rows of one sequence: row p is slot (first_slot + p) of the block list. `table` holds at
// least ceil((first_slot + rows) / block_slots) ids; entries behind those are never read.
struct SequenceRows {
  const int32_t* table = nullptr;
  uint32_t first_slot = 0;
  uint32_t rows = 0;  // N
};

// Address of row `p`, element 0, of one head.
inline std::byte* RowAddress(const KvView& view, const SequenceRows& sequence, uint32_t head,
                             uint64_t p) {
  const uint64_t slot = sequence.first_slot + p;
  const uint64_t block =
      static_cast<uint64_t>(static_cast<uint32_t>(sequence.table[slot / view.layout.block_slots]));
  return view.base + block * view.layout.block_stride + head * view.layout.head_stride +
         (slot % view.layout.block_slots) * view.layout.slot_stride;
}

// What the elements of row `p` are multiplied with: 1 unless the view is fp8. NaN for a scale that
// is none (zero, negative, not finite), which makes the row a bad one.
inline float RowScale(const KvView& view, const SequenceRows& sequence, uint32_t head, uint64_t p) {
  if (view.scales.base == nullptr) return view.layout.scale;
  const uint64_t slot = sequence.first_slot + p;
  const uint64_t block =
      static_cast<uint64_t>(static_cast<uint32_t>(sequence.table[slot / view.layout.block_slots]));
  float scale;
  std::memcpy(&scale,
              view.scales.base + block * view.scales.block_stride + head * view.scales.head_stride +
                  (slot % view.layout.block_slots) * view.scales.slot_stride,
              sizeof scale);
  return scale > 0 && scale <= std::numeric_limits<float>::max()
             ? scale
             : std::numeric_limits<float>::quiet_NaN();
}

// A dense input of one layer, already positioned at the layer and at the sequence's first row.
struct TensorView {
  const std::byte* base = nullptr;  // null = not given
  DType dtype = DType::kF32;
  uint32_t rows = 0, heads = 0, elems = 0;
  uint64_t row_stride = 0, head_stride = 0, elem_stride = 0;  // bytes

  explicit operator bool() const { return base != nullptr; }
  const std::byte* At(uint64_t row, uint64_t head, uint64_t elem) const {
    return base + row * row_stride + head * head_stride + elem * elem_stride;
  }
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_VIEWS_H_
