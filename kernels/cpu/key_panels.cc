#include "kernels/cpu/key_panels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_panels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Packs the panel at `p`; squares[kPanel] are NaN for bad rows. Returns its rows.
HWY_INLINE size_t PackKeys(const KeyRange& range, uint64_t p, KeyScratch& scratch, float* squares) {
  const size_t elems = range.layer.k.layout.row_elems;
  const size_t count = std::min<uint64_t>(kPanel, range.end - p);
  HWY_ALIGN float bad[kPanel];
  PackPanel<Norm::kSquares>({range.layer.k, range.layer.sequence, range.kv_head, p, count},
                            scratch.pack.Reserve(PackScratchFloats(elems)),
                            scratch.keys.Reserve(PanelFloats(elems)), bad, squares);
  for (size_t t = 0; t < kPanel; ++t) squares[t] += bad[t];
  return count;
}

void KeyNormsImpl(const KeyRange& range, KeyScratch& scratch, float* norms) {
  HWY_ALIGN float squares[kPanel];
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t count = PackKeys(range, p, scratch, squares);
    for (size_t t = 0; t < count; ++t) norms[p - range.begin + t] = std::sqrt(squares[t]);
  }
}

// Adds the rows of a packed panel, each times its factor, to lanes[elems][kLanes]. Factor 0 leaves
// a row out, whatever its elements are.
HWY_INLINE void AddUnits(const float* keys, const float* factors, size_t elems, float* lanes) {
  const D d;
  for (size_t c = 0; c < elems; ++c) {
    V total = hn::Load(d, lanes + c * kLanes);
    for (size_t v = 0; v < kPanel; v += kLanes) {
      const V factor = hn::Load(d, factors + v);
      const V unit = hn::Mul(hn::Load(d, keys + c * kPanel + v), factor);
      total = hn::Add(total, hn::IfThenElseZero(hn::Gt(factor, hn::Zero(d)), unit));
    }
    hn::Store(total, d, lanes + c * kLanes);
  }
}

uint64_t SumUnitKeysImpl(const KeyRange& range, KeyScratch& scratch, double* sum) {
  const size_t elems = range.layer.k.layout.row_elems;
  float* const lanes = scratch.sums.Reserve(elems * kLanes);
  std::fill_n(lanes, elems * kLanes, 0.0f);
  HWY_ALIGN float squares[kPanel], factors[kPanel];
  uint64_t good = 0;
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t count = PackKeys(range, p, scratch, squares);
    for (size_t t = 0; t < kPanel; ++t) {
      const bool counts = t < count && !std::isnan(squares[t]);
      factors[t] = counts ? 1.0f / std::max(std::sqrt(squares[t]), 1e-12f) : 0.0f;
      good += counts ? 1 : 0;
    }
    AddUnits(scratch.keys.data(), factors, elems, lanes);
  }
  for (size_t c = 0; c < elems; ++c) {
    sum[c] = 0;
    for (size_t i = 0; i < kLanes; ++i) sum[c] += lanes[c * kLanes + i];
  }
  return good;
}

// dots[kPanel] = rows of the packed panel times `mean`.
HWY_INLINE void Dots(const float* keys, const float* mean, size_t elems, float* dots) {
  const D d;
  for (size_t v = 0; v < kPanel; v += kLanes) {
    V dot[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (size_t c = 0; c < elems; ++c) {
      dot[c % 4] = hn::MulAdd(hn::Load(d, keys + c * kPanel + v), hn::Set(d, mean[c]), dot[c % 4]);
    }
    hn::Store(hn::Add(hn::Add(dot[0], dot[1]), hn::Add(dot[2], dot[3])), d, dots + v);
  }
}

void KeyDistancesImpl(const KeyRange& range, const float* mean, float mean_norm,
                      KeyScratch& scratch, float* scores) {
  HWY_ALIGN float squares[kPanel], dots[kPanel];
  for (uint64_t p = range.begin; p < range.end; p += kPanel) {
    const size_t count = PackKeys(range, p, scratch, squares);
    Dots(scratch.keys.data(), mean, range.layer.k.layout.row_elems, dots);
    for (size_t t = 0; t < count; ++t) {
      const float norm = std::sqrt(squares[t]);
      scores[p - range.begin + t] =
          std::isnan(norm) ? norm : -dots[t] / std::max(norm * mean_norm, 1e-8f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(KeyNormsImpl);
HWY_EXPORT(SumUnitKeysImpl);
HWY_EXPORT(KeyDistancesImpl);

void KeyNorms(const KeyRange& range, KeyScratch& scratch, float* norms) {
  HWY_DYNAMIC_DISPATCH(KeyNormsImpl)(range, scratch, norms);
}

uint64_t SumUnitKeys(const KeyRange& range, KeyScratch& scratch, double* sum) {
  return HWY_DYNAMIC_DISPATCH(SumUnitKeysImpl)(range, scratch, sum);
}

void KeyDistances(const KeyRange& range, const float* mean, float mean_norm, KeyScratch& scratch,
                  float* scores) {
  HWY_DYNAMIC_DISPATCH(KeyDistancesImpl)(range, mean, mean_norm, scratch, scores);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
