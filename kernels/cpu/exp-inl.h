// Exponentials for attention weights.

#if defined(KVTRIAGE_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_EXP_INL_H_
#undef KVTRIAGE_KERNELS_CPU_EXP_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_EXP_INL_H_
#endif

#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// 2^x, relative error about 2e-7, exact for whole x. x outside [-126, 127] counts as the nearer
// end: a weight is never 0 by underflow nor infinite.
HWY_INLINE V Exp2(V x) {
  const D d;
  const DI di;
  x = hn::Min(hn::Max(x, hn::Set(d, -126.0f)), hn::Set(d, 127.0f));
  // Adding 1.5 * 2^23 leaves the nearest whole number in the low bits of the sum.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));  // [-0.5, 0.5]
  V p = hn::Set(d, 0x1.5bba14p-10f);
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.3cea88p-7f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.c6b752p-5f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.ebf9bcp-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.62e42ap-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// 1 - e^y for y in [-1, 0], right to float32 also where e^y is almost 1. A small positive y gives a
// negative number.
HWY_INLINE V OneMinusExp(V y) {
  const D d;
  V p = hn::Set(d, -1.0f / 3628800);
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 362880));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 40320));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 5040));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 720));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 120));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 24));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f / 6));
  p = hn::MulAdd(p, y, hn::Set(d, -0.5f));
  p = hn::MulAdd(p, y, hn::Set(d, -1.0f));
  return hn::Mul(p, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
