// How matrix rows are packed for the panel product: in blocks of a fixed number of rows, the rest
// in one smaller block. A block of b rows of n elements lies as [n][b], so the block that starts
// with row r begins at element r * n.
#ifndef KVTRIAGE_KERNELS_CPU_ROW_BLOCKS_H_
#define KVTRIAGE_KERNELS_CPU_ROW_BLOCKS_H_

#include <algorithm>
#include <cstddef>

namespace kvtriage {

// Rows of the block that begins at row `first` of `rows`.
inline size_t RowsOfBlock(size_t first, size_t rows, size_t block_rows) {
  return std::min(rows - first, block_rows);
}

// Copies [rows][elems] (rows `pitch` apart) into blocks.
inline void PackRowBlocks(const float* from, size_t rows, size_t elems, size_t pitch,
                          size_t block_rows, float* blocks) {
  for (size_t first = 0; first < rows;) {
    const size_t count = RowsOfBlock(first, rows, block_rows);
    float* block = blocks + first * elems;
    for (size_t r = 0; r < count; ++r) {
      const float* row = from + (first + r) * pitch;
      for (size_t k = 0; k < elems; ++k) block[k * count + r] = row[k];
    }
    first += count;
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_ROW_BLOCKS_H_
