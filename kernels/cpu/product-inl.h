// The register-blocked product all scoring work is made of.

#if defined(KVTRIAGE_KERNELS_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_PRODUCT_INL_H_
#undef KVTRIAGE_KERNELS_CPU_PRODUCT_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_PRODUCT_INL_H_
#endif

#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// s += x, with what rounding has cost so far in `lost` (Kahan): the true sum is s - lost.
HWY_INLINE void AddCompensated(V x, V& sum, V& lost) {
  const V y = hn::Sub(x, lost);
  const V next = hn::Add(sum, y);
  lost = hn::Sub(hn::Sub(next, sum), y);
  sum = next;
}

// c[r][j] = sum over k of a(k, r) * b[k][j], for kRows rows and kVectors vectors of j, with
// a(k, r) = a[k * a_step + r * a_pitch]. Each element is one chain of multiply-adds in ascending k,
// so its bits depend neither on kRows nor on its place. With `lost` (pitch as c) the products are
// added to c, compensated.
template <size_t kRows, size_t kVectors, bool kAdd>
HWY_INLINE void Multiply(const float* HWY_RESTRICT a, size_t a_step, size_t a_pitch,
                         const float* HWY_RESTRICT b, size_t b_pitch, size_t depth,
                         float* HWY_RESTRICT c, size_t c_pitch, [[maybe_unused]] float* lost) {
  const D d;
  V sums[kRows * kVectors];
  HWY_UNROLL(32)
  for (size_t i = 0; i < kRows * kVectors; ++i) sums[i] = hn::Zero(d);
  for (size_t k = 0; k < depth; ++k, a += a_step, b += b_pitch) {
    V panel[kVectors];
    HWY_UNROLL(8)
    for (size_t v = 0; v < kVectors; ++v) panel[v] = hn::Load(d, b + v * kLanes);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const V row = hn::Set(d, a[r * a_pitch]);
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r * kVectors + v] = hn::MulAdd(row, panel[v], sums[r * kVectors + v]);
      }
    }
  }
  HWY_UNROLL(32)
  for (size_t i = 0; i < kRows * kVectors; ++i) {
    const size_t at = i / kVectors * c_pitch + i % kVectors * kLanes;
    if constexpr (kAdd) {
      V sum = hn::Load(d, c + at), low = hn::Load(d, lost + at);
      AddCompensated(sums[i], sum, low);
      hn::Store(low, d, lost + at);
      sums[i] = sum;
    }
    hn::Store(sums[i], d, c + at);
  }
}

template <size_t kRows>
HWY_NOINLINE void MultiplyPanelRows(const float* HWY_RESTRICT block,
                                    const float* HWY_RESTRICT panel, size_t depth,
                                    float* HWY_RESTRICT tile) {
  Multiply<kRows, kPanelVectors, false>(block, kRows, 1, panel, kPanel, depth, tile, kPanel,
                                        nullptr);
}

// tile[rows][kPanel] = block[depth][rows]^T * panel[depth][kPanel]; 1 <= rows <= kRows.
template <size_t kRows = kTileRows>
HWY_INLINE void MultiplyPanel(const float* block, size_t rows, const float* panel, size_t depth,
                              float* tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return MultiplyPanel<kRows - 1>(block, rows, panel, depth, tile);
  }
  MultiplyPanelRows<kRows>(block, panel, depth, tile);
}

template <size_t kRows>
HWY_NOINLINE void AddValueRows(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT values,
                               size_t vectors, float* HWY_RESTRICT sums, float* HWY_RESTRICT lost) {
  const size_t pitch = vectors * kLanes;
  size_t at = 0;
  for (; at + kPanel <= pitch; at += kPanel) {
    Multiply<kRows, kPanelVectors, true>(weights, 1, kPanel, values + at, pitch, kPanel, sums + at,
                                         pitch, lost + at);
  }
  for (; at < pitch; at += kLanes) {
    Multiply<kRows, 1, true>(weights, 1, kPanel, values + at, pitch, kPanel, sums + at, pitch,
                             lost + at);
  }
}

// sums[rows][vectors * kLanes] += weights[rows][kPanel] * values[kPanel][vectors * kLanes], with
// what rounding costs in `lost` (AddCompensated); 1 <= rows <= kRows.
template <size_t kRows = kTileRows>
HWY_INLINE void AddValues(const float* weights, size_t rows, const float* values, size_t vectors,
                          float* sums, float* lost) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return AddValues<kRows - 1>(weights, rows, values, vectors, sums, lost);
  }
  AddValueRows<kRows>(weights, values, vectors, sums, lost);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
