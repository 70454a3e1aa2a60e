// float32 back to elements of any scored type, rounded once.

#if defined(KVTRIAGE_KERNELS_CPU_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_NARROW_INL_H_
#undef KVTRIAGE_KERNELS_CPU_NARROW_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_NARROW_INL_H_
#endif

#include <cstring>

#include "kernels/core/dtype.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;

HWY_INLINE void StoreHalves(VU bits, std::byte* to) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(DI(), bits)), d16, reinterpret_cast<uint16_t*>(to));
}

// As FloatToF16.
HWY_INLINE VU RoundToF16(V x) {
  const D d;
  const DU du;
  const VU bits = hn::BitCast(du, x);
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const VU rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFu)), odd);
  const VU normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 0x38000000u)));
  const V aligned = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const VU subnormal = hn::Sub(hn::BitCast(du, aligned), hn::Set(du, 0x3F000000u));
  VU half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477FEFFFu)), hn::Set(du, 0x7C00u), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7F800000u)), hn::Set(du, 0x7E00u), half);
  return hn::Or(sign, half);
}

// As FloatToBF16.
HWY_INLINE VU RoundToBF16(V x) {
  const DU du;
  const VU bits = hn::BitCast(du, x);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const VU rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd));
  const VU quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7F800000u)), quiet, rounded);
}
#endif

// The `count` neighbouring elements at `to` = from[0, count); writes not a byte more.
HWY_INLINE void NarrowElements(const float* from, DType type, size_t count, std::byte* to) {
  if (type == DType::kF32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  if (type == DType::kF16) {
    for (; i + kLanes <= count; i += kLanes) {
      StoreHalves(RoundToF16(hn::LoadU(d, from + i)), to + 2 * i);
    }
  } else if (type == DType::kBF16) {
    for (; i + kLanes <= count; i += kLanes) {
      StoreHalves(RoundToBF16(hn::LoadU(d, from + i)), to + 2 * i);
    }
  }
#endif
  for (; i < count; ++i) StoreElement(to + i * ElementBytes(type), type, from[i]);
}

// The same for elements `stride` bytes apart.
HWY_INLINE void NarrowStrided(const float* from, DType type, size_t count, uint64_t stride,
                              std::byte* to) {
  if (stride == ElementBytes(type)) return NarrowElements(from, type, count, to);
  for (size_t i = 0; i < count; ++i) StoreElement(to + i * stride, type, from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
