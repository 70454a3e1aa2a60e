// Addresses of ascending rows of one head: divides only where a row leaves the block of the one
// before.
#ifndef KVTRIAGE_KERNELS_CPU_ROW_CURSOR_H_
#define KVTRIAGE_KERNELS_CPU_ROW_CURSOR_H_

#include <cstdint>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

class RowCursor {
 public:
  // Both must outlive the cursor.
  RowCursor(const KvView& view, const SequenceRows& sequence, uint32_t head)
      : view_(view), sequence_(sequence), head_(head) {}

  // Address of element 0 of row `p`; any p is right, neighbours are fast.
  std::byte* At(uint64_t p) {
    const uint64_t slot = sequence_.first_slot + p;
    // Wraps for rows before the block, so that one comparison covers both sides.
    if (slot - block_first_slot_ >= block_slots_) Enter(slot, p);
    return block_base_ + (slot - block_first_slot_) * view_.layout.slot_stride;
  }

  // RowScale of row `p`.
  float ScaleAt(uint64_t p) {
    if (view_.scales.base == nullptr) return view_.layout.scale;
    return RowScale(view_, sequence_, head_, p);
  }

  // Slots of the block of row `p` from `p` on, `p` included, and those before it.
  uint64_t RowsLeftInBlock(uint64_t p) {
    const uint64_t before = RowsBeforeInBlock(p);  // enters the block
    return block_slots_ - before;
  }
  uint64_t RowsBeforeInBlock(uint64_t p) {
    At(p);
    return sequence_.first_slot + p - block_first_slot_;
  }

 private:
  void Enter(uint64_t slot, uint64_t p) {
    block_slots_ = view_.layout.block_slots;
    const uint64_t slot_in_block = slot % block_slots_;
    block_first_slot_ = slot - slot_in_block;
    block_base_ = RowAddress(view_, sequence_, head_, p) - slot_in_block * view_.layout.slot_stride;
  }

  const KvView& view_;
  const SequenceRows& sequence_;
  const uint32_t head_;
  std::byte* block_base_ = nullptr;
  uint64_t block_first_slot_ = 0;
  uint64_t block_slots_ = 0;  // 0: no block yet, so the first row enters one
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_ROW_CURSOR_H_
