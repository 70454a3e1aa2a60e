// How to put one line together: the elements of neighbouring destination rows at one place of the
// row (transposed keys). The plan is made once and used for every element of the row.
#ifndef KVTRIAGE_KERNELS_CPU_LINE_PLAN_H_
#define KVTRIAGE_KERNELS_CPU_LINE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/head_move.h"

namespace kvtriage {

inline constexpr size_t kMaxLineRows = 256;
inline constexpr size_t kPieceBytes = 16;

// Offsets are bytes from the source view's base, for element 0 of the row.
struct LinePlan {
  // 16 neighbouring source bytes, all of them rows of the sequence, shuffled to their places in a
  // piece. Places that the window does not fill have bit 7 set and come out as zero.
  struct Window {
    alignas(kPieceBytes) uint8_t shuffle[kPieceBytes];
  };

  // The first `pieces` * 16 bytes of the line. Piece i is the union of windows [i * piece_rows,
  // i * piece_rows + windows_each): the same number for all, so that no branch depends on the data;
  // some windows are empty.
  size_t pieces = 0;
  size_t windows_each = 0;
  size_t piece_rows = 0;
  uint64_t window_offset[kMaxLineRows];
  Window window[kMaxLineRows];

  // Elements outside the pieces: the end of the line, or all of it where rows have no neighbours
  // that may be read.
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
