// How to put one line together: the elements of neighbouring destination rows at one place of the
// row (transposed keys). The plan is made once and used for every element of the row.
#ifndef KVTRIAGE_KERNELS_CPU_LINE_PLAN_H_
#define KVTRIAGE_KERNELS_CPU_LINE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/head_move.h"

namespace kvtriage {

inline constexpr size_t kMaxLineRows = 256;
inline constexpr size_t kWindowBytes = 16;

// Offsets are bytes from the source view's base, for element 0 of the row.
struct LinePlan {
  // 16 neighbouring source bytes, all of them rows of the sequence, and where its kept elements go:
  // shuffled to the front they are stored at byte `window_out` of the line. What the store writes
  // behind them is overwritten by the windows and singles that follow.
  struct Shuffle {
    alignas(kWindowBytes) uint8_t from[kWindowBytes];
  };
  size_t windows = 0;
  uint64_t window_offset[kMaxLineRows];
  uint32_t window_out[kMaxLineRows];
  Shuffle shuffle[kMaxLineRows];

  // Elements that no window can load, because their neighbours are not rows of the sequence or do
  // not lie beside them.
  size_t singles = 0;
  uint64_t single_offset[kMaxLineRows];
  uint32_t single_out[kMaxLineRows];

  // One offset in each cache line that the plan reads, to prefetch from.
  size_t cache_lines = 0;
  uint64_t cache_line_offset[2 * kMaxLineRows];

  uint32_t element_bytes = 0;
  size_t rows = 0;
  size_t bytes() const { return rows * element_bytes; }
};

// Plans destination rows [first, first + rows) of the move, rows <= kMaxLineRows.
void PlanLine(const HeadMove& move, size_t first, size_t rows, LinePlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_LINE_PLAN_H_
