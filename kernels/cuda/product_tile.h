// Sizes of the tiles that product_tile.cuh multiplies.
#ifndef KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_H_
#define KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_H_

#include <cstddef>
#include <cstdint>

namespace kvtriage {

inline constexpr uint32_t kProductThreads = 256;
inline constexpr uint32_t kProductTile = 64;   // outputs of a block in each direction
inline constexpr uint32_t kProductSteps = 32;  // terms that are in shared memory at a time
// Floats from one step to the next: whole 16 bytes, and the writers' 8 steps of 4 neighbours lie in
// 32 banks.
inline constexpr uint32_t kProductPitch = kProductTile + 4;

// Two operands.
inline constexpr size_t kProductSharedBytes =
    size_t{2} * kProductSteps * kProductPitch * sizeof(float);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_H_
