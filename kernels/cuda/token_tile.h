// Sizes of tiles of tokens in shared memory, for hosts and kernels.
#ifndef KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_H_
#define KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/host_device.h"

namespace kvtriage {

inline constexpr uint32_t kMostTileTokens = 64;

// Elements from one token to the next: odd, so that threads that read the same element of
// neighbouring tokens meet no bank conflict.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t TilePitch(uint32_t elems) { return elems | 1u; }

// Tokens of a tile whose rows have at most so many elements: 33 to 37 KB.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t TileTokens(uint32_t elems) {
  return elems <= 128 ? kMostTileTokens : elems <= 256 ? 32 : 16;
}

KVTRIAGE_HOST_DEVICE inline constexpr size_t TileBytes(uint32_t tokens, uint32_t elems) {
  return size_t{tokens} * TilePitch(elems) * sizeof(float);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_H_
