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
  if (type == DType::kF16) {
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenF16(from + 2 * i), d, out + i);
  } else {
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(WidenBF16(from + 2 * i), d, out + i);
  }
#endif
  for (; i < count; ++i) out[i] = LoadElement(from + 2 * i, type);
}

// The same for elements `stride` bytes apart.
HWY_INLINE void WidenStrided(const std::byte* from, uint64_t stride, DType type, size_t count,
                             float* out) {
  if (stride == ElementBytes(type)) return WidenElements(from, type, count, out);
  for (size_t i = 0; i < count; ++i) out[i] = LoadElement(from + i * stride, type);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
