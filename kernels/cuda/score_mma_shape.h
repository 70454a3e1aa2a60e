// Sizes of the tensor-core scorer (score_mma.cuh), and which requests it takes.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_SHAPE_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/host_device.h"

namespace kvtriage {

inline constexpr uint32_t kMmaWarps = 4;
inline constexpr uint32_t kMmaThreads = 32 * kMmaWarps;
inline constexpr uint32_t kMmaPairs = 64;  // listed pairs of a warp, at least 32
inline constexpr uint32_t kMmaMostElems = 256;

// Bytes from one staged row to the next: 16 more than it has, so that eight rows of a matrix lie in
// different banks.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t MmaPitch(uint32_t elems) { return elems * 2 + 16; }

// Head sizes are padded with zeros to one of these.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t MmaElems(uint32_t elems) {
  return elems <= 64 ? 64 : elems <= 128 ? 128 : kMmaMostElems;
}

struct MmaShape {
  uint32_t tiles;         // of 16 tokens, per warp
  uint32_t block_tokens;  // of a block
  uint32_t query_rows;    // staged at a time, twice
};

// Longer rows leave registers for one tile of tokens only. Query rows take the place of the tokens:
// twice query_rows equals block_tokens.
KVTRIAGE_HOST_DEVICE inline constexpr MmaShape MmaShapeOf(uint32_t elems) {
  const uint32_t tiles = elems <= 128 ? 2 : 1;
  return {tiles, tiles * 16 * kMmaWarps, tiles * 8 * kMmaWarps};
}

// Rows that a block stages at a time, with V and O or without.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t MmaStagedRows(uint32_t elems, bool outputs) {
  return MmaShapeOf(elems).block_tokens * (outputs ? 2 : 1);
}

// What two tiles of query rows need beside their products: five numbers a row.
KVTRIAGE_HOST_DEVICE inline constexpr size_t MmaColumnBytes(uint32_t query_rows) {
  return size_t{2} * 5 * 4 * query_rows;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_SHAPE_H_
