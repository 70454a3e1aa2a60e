// Rows copied by number: recomputed K and V rows over the old ones of a cache (fusing), and the
// rows to recompute out of Q or the residual stream (gathering). Bytes are copied, never
// interpreted; a store writes bytes of copied rows and no others. Doing it twice gives the same
// bytes.
#ifndef KVTRIAGE_KERNELS_FUSE_H_
#define KVTRIAGE_KERNELS_FUSE_H_

#include <cstdint>
#include <span>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

// All heads of `count` rows: row to_row[j] of the destination becomes row from_row[j] of the
// source. An empty list stands for 0, 1, 2, ... The two share no byte; layouts may differ in
// strides and block_slots but agree in heads, row_elems and encoding.
struct RowCopy {
  KvView from;
  SequenceRows from_rows;
  std::span<const int32_t> from_row;
  KvView to;
  SequenceRows to_rows;
  std::span<const int32_t> to_row;  // ascending
  uint32_t count = 0;
};

struct RowCopyResult {
  uint64_t bytes_written = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_FUSE_H_
