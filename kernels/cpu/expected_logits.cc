#include "kernels/cpu/expected_logits.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expected_logits.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// out[kPanel] = linear.k + k^T quadratic k of the packed keys, the terms of a block of rows at a
// time, compensated.
HWY_INLINE void PanelLogits(const ExpectedQuery& query, const float* keys, float* tile,
                            float* out) {
  const D d;
  const size_t elems = query.linear.size();
  V sums[kPanelVectors], lost[kPanelVectors];
  for (size_t i = 0; i < kPanelVectors; ++i) sums[i] = lost[i] = hn::Zero(d);
  for (size_t first = 0; first < elems;) {
    const size_t count = RowsOfBlock(first, elems, kTileRows);
    MultiplyPanel(query.quadratic.data() + first * elems, count, keys, elems, tile);
    for (size_t i = 0; i < kPanelVectors; ++i) {
      V block = hn::Zero(d);
      for (size_t r = 0; r < count; ++r) {
        const V row = hn::Add(hn::Load(d, tile + r * kPanel + i * kLanes),
                              hn::Set(d, query.linear[first + r]));
        block = hn::MulAdd(row, hn::Load(d, keys + (first + r) * kPanel + i * kLanes), block);
      }
      AddCompensated(block, sums[i], lost[i]);
    }
    first += count;
  }
  for (size_t i = 0; i < kPanelVectors; ++i) hn::Store(sums[i], d, out + i * kLanes);
}

void ExpectedLogitsImpl(const LayerRows& layer, uint32_t kv_head,
                        const std::vector<const ExpectedQuery*>& group, uint64_t begin,
                        uint64_t end, ExpectedScratch& scratch, const std::vector<float*>& logits,
                        float* norms) {
  const size_t dk = layer.k.layout.row_elems, dv = layer.v.layout.row_elems;
  float* const pack = scratch.pack.Reserve(PackScratchFloats(std::max(dk, dv)));
  float* const keys = scratch.keys.Reserve(PanelFloats(dk));
  float* const values = scratch.values.Reserve(PanelFloats(dv));
  float* const tile = scratch.tile.Reserve(kTileRows * kPanel);
  HWY_ALIGN float bad_keys[kPanel], bad_values[kPanel], squares[kPanel], panel[kPanel];
  for (uint64_t p = begin; p < end; p += kPanel) {
    const size_t count = std::min<uint64_t>(kPanel, end - p);
    PackPanel<Norm::kNone>({layer.k, layer.sequence, kv_head, p, count}, pack, keys, bad_keys,
                           bad_keys);
    PackPanel<Norm::kSquares>({layer.v, layer.sequence, kv_head, p, count}, pack, values,
                              bad_values, squares);
    for (size_t h = 0; h < group.size(); ++h) {
      PanelLogits(*group[h], keys, tile, panel);
      for (size_t t = 0; t < count; ++t) {
        logits[h][p - begin + t] = panel[t] + (bad_keys[t] + bad_values[t]);
      }
    }
    for (size_t t = 0; t < count; ++t) {
      norms[p - begin + t] = std::sqrt(squares[t]) + (bad_keys[t] + bad_values[t]);
    }
  }
}

size_t ExpectedTileRowsImpl() { return kTileRows; }

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(ExpectedLogitsImpl);
HWY_EXPORT(ExpectedTileRowsImpl);

size_t ExpectedTileRows() { return HWY_DYNAMIC_DISPATCH(ExpectedTileRowsImpl)(); }

void ExpectedLogits(const LayerRows& layer, uint32_t kv_head,
                    const std::vector<const ExpectedQuery*>& group, uint64_t begin, uint64_t end,
                    ExpectedScratch& scratch, const std::vector<float*>& logits, float* norms) {
  HWY_DYNAMIC_DISPATCH(ExpectedLogitsImpl)
  (layer, kv_head, group, begin, end, scratch, logits, norms);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
