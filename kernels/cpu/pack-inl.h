// Rows of K or V, however they are stored, to the panels that the products read. Every layout gives
// the same bits. Rows outside the asked range are never read.

#if defined(KVTRIAGE_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#undef KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/cpu/row_cursor.h"
#include "kernels/cpu/transpose-inl.h"
#include "kernels/cpu/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Room for a panel, its rows rounded up, in floats.
constexpr size_t PanelFloats(size_t elems) { return (elems + 7) / 8 * 8 * kPanel; }

template <Norm kNorm>
HWY_INLINE void SumPanel(const float* panel, size_t elems, float* bad, float* norms) {
  const D d;
  for (size_t v = 0; v < kPanel; v += kLanes) {
    ElementSums<kNorm> sums;
    for (size_t k = 0; k < elems; ++k) sums.Add(k % 4, hn::Load(d, panel + k * kPanel + v));
    sums.Store(bad + v, norms + v);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Stores a vector column of a panel.
struct PanelColumn {
  float* panel;
  HWY_INLINE void Take(size_t k, V x) { hn::Store(x, D(), panel + k * kPanel); }
};

// Rows with neighbouring elements.
template <Norm kNorm>
HWY_INLINE void PackRows(const TokenRange& from, float* scratch, float* panel, float* bad,
                         float* norms) {
  RowVectors rows(from, scratch);
  for (size_t v = 0; v < kPanel; v += kLanes) {
    PanelColumn column{panel + v};
    rows.Transpose<kNorm>(v, column, bad + v, norms + v);
  }
}
#endif  // HWY_SCALAR

// Any other strides: element by element of the row, along the slots, because they are neighbours in
// memory where keys are stored transposed.
template <Norm kNorm>
HWY_INLINE void PackColumns(const TokenRange& from, float* panel, float* bad, float* norms) {
  const ViewLayout& layout = from.view.layout;
  RowCursor cursor(from.view, from.sequence, from.head);
  const bool scaled = IsF8(layout.dtype);
  HWY_ALIGN float scales[kPanel];
  for (size_t lane = 0; scaled && lane < from.count; ++lane) {
    scales[lane] = cursor.ScaleAt(from.begin + lane);
  }
  for (size_t lane = 0; lane < from.count;) {
    const uint64_t p = from.begin + lane;
    const size_t run = std::min<uint64_t>(from.count - lane, cursor.RowsLeftInBlock(p));
    const std::byte* const row = cursor.At(p);
    for (size_t k = 0; k < layout.row_elems; ++k) {
      WidenStrided(row + k * layout.elem_stride, layout.slot_stride, layout.dtype, run,
                   panel + k * kPanel + lane);
      for (size_t t = lane; scaled && t < lane + run; ++t) panel[k * kPanel + t] *= scales[t];
    }
    lane += run;
  }
  for (size_t k = 0; from.count < kPanel && k < layout.row_elems; ++k) {
    std::fill(panel + k * kPanel + from.count, panel + (k + 1) * kPanel, 0.0f);
  }
  SumPanel<kNorm>(panel, layout.row_elems, bad, norms);
}

// panel[elem][kPanel] = the rows, transposed; lanes behind the last row are 0. bad[kPanel] is NaN
// for rows with a non-finite element, else 0; norms[kPanel] as `kNorm` says.
template <Norm kNorm>
HWY_NOINLINE void PackPanel(const TokenRange& from, [[maybe_unused]] float* scratch, float* panel,
                            float* bad, float* norms) {
#if HWY_TARGET != HWY_SCALAR
  if (from.view.layout.contiguous_rows()) return PackRows<kNorm>(from, scratch, panel, bad, norms);
#endif
  PackColumns<kNorm>(from, panel, bad, norms);
}

// values[kPanel][pitch] = the rows as they lie, zero behind the last element and the last row and
// in rows with a non-finite element. bad as for PackPanel.
HWY_NOINLINE inline void PackValueRows(const TokenRange& from, size_t pitch, float* values,
                                       float* bad) {
  const D d;
  const ViewLayout& layout = from.view.layout;
  RowCursor cursor(from.view, from.sequence, from.head);
  for (size_t t = 0; t < kPanel; ++t) {
    float* const row = values + t * pitch;
    bad[t] = 0.0f;
    if (t >= from.count) {
      std::fill(row, row + pitch, 0.0f);
      continue;
    }
    WidenRow(cursor.At(from.begin + t), layout, cursor.ScaleAt(from.begin + t), row);
    std::fill(row + layout.row_elems, row + pitch, 0.0f);
    V check = hn::Zero(d);
    for (size_t k = 0; k < pitch; k += kLanes) {
      check = hn::MulAdd(hn::Load(d, row + k), hn::Zero(d), check);
    }
    if (hn::AllTrue(d, hn::Eq(check, hn::Zero(d)))) continue;
    bad[t] = std::numeric_limits<float>::quiet_NaN();
    std::fill(row, row + pitch, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
