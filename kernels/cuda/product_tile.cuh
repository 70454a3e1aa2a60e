// Matrix products in float32 for what must not lose digits on tensor cores: a block of 256 threads
// makes 64 x 64 outputs, a thread 4 x 4 of them. Every output is one chain of sums over the steps,
// so equal operands give equal bits wherever they stand in a tile.
#ifndef KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_CUH_
#define KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/product_tile.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// The two operands in shared memory: [step][64], kProductPitch apart.
struct ProductTiles {
  simt::Shared<float> a, b;
};

SIMT_DEVICE ProductTiles TilesAt(size_t offset) {
  constexpr size_t kOperand = size_t{kProductSteps} * kProductPitch * sizeof(float);
  return {simt::Shared<float>(simt::SharedMemory(offset)),
          simt::Shared<float>(simt::SharedMemory(offset + kOperand))};
}

// First of the thread's four outputs along each operand.
SIMT_DEVICE uint32_t FirstOfA() { return simt::ThreadX() / 16 * 4; }
SIMT_DEVICE uint32_t FirstOfB() { return simt::ThreadX() % 16 * 4; }

// By all threads: tile[step][i] = element(i, step) for all 64 i, where steps lie next to each other
// in memory. A warp takes patches of 8 steps times 4 rows: no bank conflict, whole pieces of rows.
template <class Element>
SIMT_DEVICE void LoadByRows(const simt::Shared<float>& tile, Element element) {
  const uint32_t lane = simt::ThreadX() % 32, warp = simt::ThreadX() / 32;
  SIMT_UNROLL
  for (uint32_t n = 0; n < 8; ++n) {
    const uint32_t step = n / 2 * 8 + lane % 8, i = warp * 8 + n % 2 * 4 + lane / 8;
    tile[step * kProductPitch + i] = element(i, step);
  }
}

// The same where the 64 lie next to each other in memory.
template <class Element>
SIMT_DEVICE void LoadBySteps(const simt::Shared<float>& tile, Element element) {
  const uint32_t i = simt::ThreadX() % kProductTile, first = simt::ThreadX() / kProductTile;
  SIMT_UNROLL
  for (uint32_t n = 0; n < 8; ++n) {
    const uint32_t step = first + n * (kProductThreads / kProductTile);
    tile[step * kProductPitch + i] = element(i, step);
  }
}

SIMT_DEVICE void LoadFour(const simt::Shared<float>& tile, uint32_t at, float (&out)[4]) {
  const simt::Vec16 words =
      simt::Shared<simt::Vec16>(reinterpret_cast<std::byte*>(tile.data()))[at / 4];
  out[0] = simt::BitsFloat(words.x);
  out[1] = simt::BitsFloat(words.y);
  out[2] = simt::BitsFloat(words.z);
  out[3] = simt::BitsFloat(words.w);
}

// sums[i][j] += sum over the steps of a[step][FirstOfA + i] * b[step][FirstOfB + j].
SIMT_DEVICE void MultiplyTiles(const ProductTiles& tiles, float (&sums)[4][4]) {
  const uint32_t first_a = FirstOfA(), first_b = FirstOfB();
  SIMT_UNROLL_BY(8)
  for (uint32_t step = 0; step < kProductSteps; ++step) {
    float a[4], b[4];
    LoadFour(tiles.a, step * kProductPitch + first_a, a);
    LoadFour(tiles.b, step * kProductPitch + first_b, b);
    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      SIMT_UNROLL
      for (uint32_t j = 0; j < 4; ++j) sums[i][j] += a[i] * b[j];
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PRODUCT_TILE_CUH_
