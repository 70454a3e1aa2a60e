#include "kernels/cpu/lag_panels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lag_panels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Packs the panel at `p`; bad[kPanel] as for PackPanel. Returns its rows.
HWY_INLINE size_t PackRange(const RowRange& range, uint64_t p, LagScratch& scratch, float* bad) {
  const size_t elems = range.view.layout.row_elems;
  const size_t count = std::min<uint64_t>(kPanel, range.end - p);
  PackPanel<Norm::kNone>({range.view, range.sequence, range.head, p, count},
                         scratch.pack.Reserve(PackScratchFloats(elems)),
                         scratch.panel.Reserve(PanelFloats(elems)), bad, bad);
  return count;
}

void MarkBadRowsImpl(const RowRange& range, LagScratch& scratch, float* bad) {
  HWY_ALIGN float panel_bad[kPanel];
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t count = PackRange(range, p, scratch, panel_bad);
    for (size_t t = 0; t < count; ++t) bad[p - range.begin + t] += panel_bad[t];
  }
}

void FindExtremesImpl(const RowRange& range, const float* bad, LagScratch& scratch, float* low,
                      float* high) {
  const D d;
  const size_t elems = range.view.layout.row_elems;
  const float inf = std::numeric_limits<float>::infinity();
  float* const lows = scratch.low_lanes.Reserve(elems * kLanes);
  float* const highs = scratch.high_lanes.Reserve(elems * kLanes);
  std::fill_n(lows, elems * kLanes, inf);
  std::fill_n(highs, elems * kLanes, -inf);
  HWY_ALIGN float counts[kPanel];  // 0 where a row counts
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t rows = PackRange(range, p, scratch, counts);
    for (size_t t = 0; t < kPanel; ++t) {
      counts[t] = t < rows && bad[p - range.begin + t] == 0.0f ? 0.0f : 1.0f;
    }
    for (size_t c = 0; c < elems; ++c) {
      V lowest = hn::Load(d, lows + c * kLanes), highest = hn::Load(d, highs + c * kLanes);
      for (size_t v = 0; v < kPanel; v += kLanes) {
        const auto in = hn::Eq(hn::Load(d, counts + v), hn::Zero(d));
        const V x = hn::Load(d, scratch.panel.data() + c * kPanel + v);
        lowest = hn::Min(lowest, hn::IfThenElse(in, x, hn::Set(d, inf)));
        highest = hn::Max(highest, hn::IfThenElse(in, x, hn::Set(d, -inf)));
      }
      hn::Store(lowest, d, lows + c * kLanes);
      hn::Store(highest, d, highs + c * kLanes);
    }
  }
  for (size_t c = 0; c < elems; ++c) {
    low[c] = *std::min_element(lows + c * kLanes, lows + (c + 1) * kLanes);
    high[c] = *std::max_element(highs + c * kLanes, highs + (c + 1) * kLanes);
  }
}

// Puts y in place of the panel's elements and sets deviations[kPanel].
HWY_INLINE void SpreadPanel(float* panel, size_t elems, const float* low, const float* high,
                            float* deviations) {
  const D d;
  for (size_t v = 0; v < kPanel; v += kLanes) {
    V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (size_t c = 0; c < elems; ++c) {
      float* const at = panel + c * kPanel + v;
      const float width = high[c] - low[c];
      const V y = width > 0.0f
                      ? hn::Div(hn::Sub(hn::Load(d, at), hn::Set(d, low[c])), hn::Set(d, width))
                      : hn::Zero(d);
      hn::Store(y, d, at);
      sums[c % 4] = hn::Add(sums[c % 4], y);
    }
    const V mean = hn::Div(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])),
                           hn::Set(d, static_cast<float>(elems)));
    for (V& sum : sums) sum = hn::Zero(d);
    for (size_t c = 0; c < elems; ++c) {
      const V off = hn::Sub(hn::Load(d, panel + c * kPanel + v), mean);
      sums[c % 4] = hn::MulAdd(off, off, sums[c % 4]);
    }
    const float divisor = elems > 1 ? static_cast<float>(elems - 1) : 1.0f;
    const V variance =
        hn::Div(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), hn::Set(d, divisor));
    hn::Store(hn::Sqrt(variance), d, deviations + v);
  }
}

void DeviationsImpl(const RowRange& range, const float* low, const float* high, LagScratch& scratch,
                    float* deviations) {
  HWY_ALIGN float bad[kPanel], panel[kPanel];
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t count = PackRange(range, p, scratch, bad);
    SpreadPanel(scratch.panel.data(), range.view.layout.row_elems, low, high, panel);
    std::copy_n(panel, count, deviations + (p - range.begin));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(MarkBadRowsImpl);
HWY_EXPORT(FindExtremesImpl);
HWY_EXPORT(DeviationsImpl);

void MarkBadRows(const RowRange& range, LagScratch& scratch, float* bad) {
  HWY_DYNAMIC_DISPATCH(MarkBadRowsImpl)(range, scratch, bad);
}

void FindExtremes(const RowRange& range, const float* bad, LagScratch& scratch, float* low,
                  float* high) {
  HWY_DYNAMIC_DISPATCH(FindExtremesImpl)(range, bad, scratch, low, high);
}

void Deviations(const RowRange& range, const float* low, const float* high, LagScratch& scratch,
                float* deviations) {
  HWY_DYNAMIC_DISPATCH(DeviationsImpl)(range, low, high, scratch, deviations);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
