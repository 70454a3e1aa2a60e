// Moving kept rows together. Row j of the destination becomes row kept[j] of the source; kept
// ascends, so in place a destination is never above its source and no scratch is needed. Bytes are
// copied, never interpreted; a store writes bytes of moved rows and no others, also where rows
// interleave in memory (transposed keys). Rows that are already in place are skipped.
#ifndef KVTRIAGE_KERNELS_COMPACT_H_
#define KVTRIAGE_KERNELS_COMPACT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

// All heads of one view of one (sequence, layer). In place: `to` equals `from`. Copy: destination
// rows and source rows share no (block, head, slot). Layouts may differ in strides and block_slots
// but agree in heads and row encoding.
struct MoveRequest {
  KvView from;
  SequenceRows from_rows;
  KvView to;
  SequenceRows to_rows;  // rows = longest list; table covers first_slot + rows
  std::vector<std::span<const int32_t>> kept;  // one per head
};

struct MoveResult {
  uint64_t bytes_written = 0;  // row_bytes * rows not already in place
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_COMPACT_H_
