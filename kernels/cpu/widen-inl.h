// Elements of any scored type to float32.

#if defined(KVTRIAGE_KERNELS_CPU_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_WIDEN_INL_H_
#undef KVTRIAGE_KERNELS_CPU_WIDEN_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_WIDEN_INL_H_
#endif

#include <cstring>

#include "kernels/core/dtype.h"
#include "kernels/cpu/tile-inl.h"
#include "kvtriage/kernels/views.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// kLanes f16 at `from`, any alignment. Highway's own conversion makes numbers of infinities and NaN
// where the processor has no instruction for it.
HWY_INLINE V WidenF16(const std::byte* from) {
  const D d;
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto half = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  const auto magnitude = hn::And(half, hn::Set(d32, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  // The product moves the exponent and normalises subnormals; infinities and NaN need theirs set.
  const V moved = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special =
      hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(d32, 0x7BFFu)), hn::Set(d32, 0x7F800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(d32, moved), special), sign));
#endif
}

HWY_INLINE V WidenBF16(const std::byte* from) {
  const D d;
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

// The codes of kLanes fp8 numbers at `from`, widened.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> LoadCodes(const std::byte* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<uint8_t, D> d8;
  return hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
}

// Numbers whose exponents are `kBias` too low and that lie `kShift` bits too low; codes above
// `largest` get all exponent bits.
template <int kShift>
HWY_INLINE V WidenCodes(hn::Vec<hn::RebindToUnsigned<D>> code, float move, uint32_t largest) {
  const D d;
  const hn::RebindToUnsigned<D> d32;
  const auto magnitude = hn::And(code, hn::Set(d32, 0x7Fu));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(code, magnitude));
  // The product moves the exponent and normalises subnormals; infinities and NaN need theirs set.
  const V moved = hn::Mul(hn::BitCast(d, hn::ShiftLeft<kShift>(magnitude)), hn::Set(d, move));
  const auto special =
      hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(d32, largest)), hn::Set(d32, 0x7F800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(d32, moved), special), sign));
}

HWY_INLINE V WidenE4M3(const std::byte* from) {
  return WidenCodes<20>(LoadCodes(from), 0x1p120f, 0x7E);
}
HWY_INLINE V WidenE5M2(const std::byte* from) {
  return WidenCodes<21>(LoadCodes(from), 0x1p112f, 0x7B);
}
#endif

// out[0, count) = the `count` neighbouring elements at `from`; reads not a byte more.
HWY_INLINE void WidenElements(const std::byte* from, DType type, size_t count, float* out) {
  if (type == DType::kF32) {
    std::memcpy(out, from, count * sizeof(float));
    return;
  }
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  switch (type) {
    case DType::kF16:
      for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenF16(from + 2 * i), d, out + i);
      break;
    case DType::kF8E4M3:
      for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenE4M3(from + i), d, out + i);
      break;
    case DType::kF8E5M2:
      for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenE5M2(from + i), d, out + i);
      break;
    default:
      for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenBF16(from + 2 * i), d, out + i);
  }
#endif
  for (; i < count; ++i) out[i] = LoadElement(from + ElementBytes(type) * i, type);
}

// The same for elements `stride` bytes apart.
HWY_INLINE void WidenStrided(const std::byte* from, uint64_t stride, DType type, size_t count,
                             float* out) {
  if (stride == ElementBytes(type)) return WidenElements(from, type, count, out);
  for (size_t i = 0; i < count; ++i) out[i] = LoadElement(from + i * stride, type);
}

// A row of K or V; fp8 is multiplied with the row's scale.
HWY_INLINE void WidenRow(const std::byte* from, const ViewLayout& layout, float scale, float* out) {
  WidenStrided(from, layout.elem_stride, layout.dtype, layout.row_elems, out);
  if (scale == 1.0f || !IsF8(layout.dtype)) return;
  for (size_t i = 0; i < layout.row_elems; ++i) out[i] *= scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
