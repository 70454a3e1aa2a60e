// Tiles of K or V rows in shared memory, widened to float32.
#ifndef KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_CUH_
#define KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.h"

namespace kvtriage {

// By all threads of a block of `threads`: rows [first, first + count) of one head go to
// tile[token * TilePitch(row_elems) + element]; those of tokens from `count` to `tokens` become 0.
// bad[token] is set where an element is not finite. Needs a barrier before and behind.
SIMT_DEVICE void LoadTile(const DeviceView& view, uint32_t head, uint64_t first, uint32_t count,
                          uint32_t tokens, uint32_t threads, const simt::Shared<float>& tile,
                          const simt::Shared<uint32_t>& bad) {
  const uint32_t lane = simt::ThreadX() % 32, elems = view.row_elems, pitch = TilePitch(elems);
  for (uint32_t token = simt::ThreadX() / 32; token < tokens; token += threads / 32) {
    bool good = true;
    if (token < count) {
      const std::byte* const at = RowAt(view.rows, first + token) + head * view.head_stride;
      const float scale = RowScaleOf(view, head, first + token);
      for (uint32_t e = lane; e < elems; e += 32) {
        const float x = LoadWide(at + e * view.rows.elem_stride, view.dtype) * scale;
        good = good && IsFinite(x);
        tile[token * pitch + e] = x;
      }
    } else {
      for (uint32_t e = lane; e < elems; e += 32) tile[token * pitch + e] = 0.0f;
    }
    if (simt::Ballot(simt::kAllLanes, !good) != 0 && lane == 0) bad[token] = 1;
  }
}

// Products of one token's row in a tile with kRows rows of float32 (16-byte aligned when `elems` is
// a multiple of 4), each as one chain of sums: the same bits for the same numbers, wherever the
// token stands. Rows from `rows` on repeat the last one.
template <uint32_t kRows>
SIMT_DEVICE void MultiplyRows(const simt::Shared<float>& tile, uint32_t token, uint32_t elems,
                              const float* rows, uint32_t count, float (&products)[kRows]) {
  const float* at[kRows];
  SIMT_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) {
    at[r] = rows + uint64_t{r < count ? r : count - 1} * elems;
    products[r] = 0.0f;
  }
  const uint32_t base = token * TilePitch(elems);
  uint32_t e = 0;
  if (elems % 4 == 0) {
    for (; e < elems; e += 4) {
      const float x[4] = {tile[base + e], tile[base + e + 1], tile[base + e + 2],
                          tile[base + e + 3]};
      SIMT_UNROLL
      for (uint32_t r = 0; r < kRows; ++r) {
        const simt::Vec16 words = simt::Load(reinterpret_cast<const simt::Vec16*>(at[r] + e));
        products[r] = simt::Fma(x[0], simt::BitsFloat(words.x), products[r]);
        products[r] = simt::Fma(x[1], simt::BitsFloat(words.y), products[r]);
        products[r] = simt::Fma(x[2], simt::BitsFloat(words.z), products[r]);
        products[r] = simt::Fma(x[3], simt::BitsFloat(words.w), products[r]);
      }
    }
  }
  for (; e < elems; ++e) {
    SIMT_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      products[r] = simt::Fma(tile[base + e], simt::Load(at[r] + e), products[r]);
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_TOKEN_TILE_CUH_
