// How kernels walk views.
#ifndef KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_CUH_
#define KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Element 0 of row `row`.
SIMT_DEVICE std::byte* RowAt(const DeviceRows& rows, uint64_t row) {
  const uint64_t slot = rows.first_slot + row;
  const uint64_t in_table = slot / rows.block_slots;
  const auto block =
      static_cast<uint64_t>(static_cast<uint32_t>(simt::Load(rows.table + in_table)));
  return rows.head + block * rows.block_stride +
         (slot - in_table * rows.block_slots) * rows.slot_stride;
}

// Element at an aligned address; of fp8 the bare code.
SIMT_DEVICE float LoadWide(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return simt::Load(reinterpret_cast<const float*>(at));
    case DType::kF16:
      return F16ToFloat(simt::Load(reinterpret_cast<const uint16_t*>(at)));
    case DType::kBF16:
      return BF16ToFloat(simt::Load(reinterpret_cast<const uint16_t*>(at)));
    default:
      return F8ToFloat(simt::Load(reinterpret_cast<const uint8_t*>(at)), dtype);
  }
}

SIMT_DEVICE float TensorAt(const DeviceTensor& tensor, uint64_t row, uint64_t head, uint64_t elem) {
  return LoadWide(
      tensor.base + row * tensor.row_stride + head * tensor.head_stride + elem * tensor.elem_stride,
      tensor.dtype);
}

SIMT_DEVICE bool IsFinite(float value) {
  return (simt::FloatBits(value) & 0x7F800000u) != 0x7F800000u;
}

// Rounded once to the type; fp8 saturates.
SIMT_DEVICE void StoreNarrow(std::byte* at, DType dtype, float value) {
  switch (dtype) {
    case DType::kF32:
      return simt::Store(reinterpret_cast<float*>(at), value);
    case DType::kF16:
      return simt::Store(reinterpret_cast<uint16_t*>(at), FloatToF16(value));
    case DType::kBF16:
      return simt::Store(reinterpret_cast<uint16_t*>(at), FloatToBF16(value));
    case DType::kF8E4M3:
      return simt::Store(reinterpret_cast<uint8_t*>(at), FloatToE4M3(value));
    case DType::kF8E5M2:
      return simt::Store(reinterpret_cast<uint8_t*>(at), FloatToE5M2(value));
  }
}

// What the elements of a row are multiplied with: 1 unless fp8; NaN for a scale that is none (zero,
// negative, not finite), which makes the row a bad one.
SIMT_DEVICE float RowScaleOf(const DeviceView& view, uint32_t head, uint64_t row) {
  if (!IsF8(view.dtype)) return 1.0f;
  if (view.scales == nullptr) return view.scale;
  const uint64_t slot = view.rows.first_slot + row;
  const uint64_t in_table = slot / view.rows.block_slots;
  const auto block =
      static_cast<uint64_t>(static_cast<uint32_t>(simt::Load(view.rows.table + in_table)));
  const float scale = simt::Load(reinterpret_cast<const float*>(
      view.scales + block * view.scale_block_stride + head * view.scale_head_stride +
      (slot - in_table * view.rows.block_slots) * view.scale_slot_stride));
  return scale > 0 && scale <= 3.402823466e38f ? scale : simt::BitsFloat(0x7FC00000u);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DEVICE_VIEW_CUH_
