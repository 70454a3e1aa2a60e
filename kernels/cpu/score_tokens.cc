#include "kernels/cpu/score_tokens.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/score_tokens.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/score_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

template <Term kTerm>
void ScoreRange(const ScoreTask& task, uint64_t begin, uint64_t end, ScoreScratch& scratch) {
  // Batches of a long window see only their past; behind it they have nothing to add, start or end.
  const std::vector<RowBatch::Segment>& segments = task.rows.segments;
  const bool adds_only = !task.first_batch && !task.last_batch &&
                         std::none_of(segments.begin(), segments.end(),
                                      [](const RowBatch::Segment& s) { return s.complete; });
  if (adds_only) end = std::min(end, task.rows.LargestLimit());
  PanelScorer<kTerm> scorer(task, scratch);
  for (uint64_t p = begin; p < end; p += kPanel) {
    scorer.Score(p, std::min<uint64_t>(kPanel, end - p));
  }
}

void ScoreTokensImpl(const ScoreTask& task, uint64_t begin, uint64_t end, ScoreScratch& scratch) {
  switch (task.request.spec.scorer) {
    case Scorer::kObcValue:
      return ScoreRange<Term::kValue>(task, begin, end, scratch);
    case Scorer::kObcKey:
      return ScoreRange<Term::kKey>(task, begin, end, scratch);
    case Scorer::kObcJoint:
      return ScoreRange<Term::kJoint>(task, begin, end, scratch);
    case Scorer::kDrop:
      return ScoreRange<Term::kDrop>(task, begin, end, scratch);
    default:
      return ScoreRange<Term::kMass>(task, begin, end, scratch);
  }
}

void SumMagnitudesImpl(const LayerRows& layer, uint32_t kv_head, uint64_t begin, uint64_t end,
                       ScoreScratch& scratch, float* magnitudes) {
  const size_t elems = layer.v.layout.row_elems;
  HWY_ALIGN float bad[kPanel], norms[kPanel];
  for (uint64_t p = begin; p < end; p += kPanel) {
    const size_t count = std::min<uint64_t>(kPanel, end - p);
    PackPanel<Norm::kMagnitudes>({layer.v, layer.sequence, kv_head, p, count},
                                 scratch.pack.Reserve(PackScratchFloats(elems)),
                                 scratch.values.Reserve(PanelFloats(elems)), bad, norms);
    for (size_t t = 0; t < count; ++t) magnitudes[p - begin + t] = norms[t] + bad[t];
  }
}

TileShape TileShapeImpl() { return {kTileRows, kPanel}; }

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(ScoreTokensImpl);
HWY_EXPORT(SumMagnitudesImpl);
HWY_EXPORT(TileShapeImpl);

TileShape ScoreTileShape() { return HWY_DYNAMIC_DISPATCH(TileShapeImpl)(); }

void ScoreTokens(const ScoreTask& task, uint64_t begin, uint64_t end, ScoreScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(ScoreTokensImpl)(task, begin, end, scratch);
}

void SumMagnitudes(const LayerRows& layer, uint32_t kv_head, uint64_t begin, uint64_t end,
                   ScoreScratch& scratch, float* magnitudes) {
  HWY_DYNAMIC_DISPATCH(SumMagnitudesImpl)(layer, kv_head, begin, end, scratch, magnitudes);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
