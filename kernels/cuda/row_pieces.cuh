// Rows as warps read them: in pieces of 8 elements; piece i of a row belongs to lane i mod 32,
// whatever the layout and the type, so that equal rows give equal bits.
#ifndef KVTRIAGE_KERNELS_CUDA_ROW_PIECES_CUH_
#define KVTRIAGE_KERNELS_CUDA_ROW_PIECES_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

inline constexpr uint32_t kPieceElems = 8;

// One row of one head.
struct RowSide {
  const DeviceView* view;
  const std::byte* head;  // element 0 of the head
  float scale;
};

SIMT_DEVICE float Widened(const RowSide& side, uint32_t elem) {
  const float value = LoadWide(side.head + elem * side.view->rows.elem_stride, side.view->dtype);
  return IsF8(side.view->dtype) ? value * side.scale : value;
}

// Eight neighbouring elements of a type of two bytes in one access, when `kWide` says that the row
// allows it.
template <bool kWide>
SIMT_DEVICE void LoadPiece(const RowSide& side, uint32_t first, uint32_t count, float* out) {
  if constexpr (kWide) {
    const auto* at = reinterpret_cast<const simt::Vec16*>(side.head + size_t{first} * 2);
    const simt::Vec16 words = simt::Load(at);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const auto low = static_cast<uint16_t>(pairs[i]),
                 high = static_cast<uint16_t>(pairs[i] >> 16);
      const bool half = side.view->dtype == DType::kF16;
      out[2 * i] = half ? F16ToFloat(low) : BF16ToFloat(low);
      out[2 * i + 1] = half ? F16ToFloat(high) : BF16ToFloat(high);
    }
  } else {
    for (uint32_t i = 0; i < kPieceElems; ++i) {
      out[i] = i < count ? Widened(side, first + i) : 0.0f;
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROW_PIECES_CUH_
