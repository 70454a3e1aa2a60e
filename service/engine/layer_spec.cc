#include "service/engine/layer_spec.h"

#include <optional>

namespace kvtriage {
namespace {

void CutTensor(std::optional<TensorSpec>& tensor, size_t place) {
  if (!tensor) return;
  // Inside the region: the plan of the whole call has checked the last layer.
  tensor->offset += place * tensor->layer_stride;
  tensor->layers = 1;
  tensor->layer_stride = 0;
}

void CutProtect(ExplicitRows& protect, const PlanCache& cache, size_t place) {
  if (protect.lists.empty() || protect.granularity == Granularity::kPerSequence) return;
  size_t first = 0, count = 1;
  if (protect.granularity == Granularity::kPerLayer) {
    first = place;
  } else {
    for (size_t l = 0; l < place; ++l) first += cache.layers[l].kv_heads();
    count = cache.layers[place].kv_heads();
  }
  const auto begin = protect.lists.begin() + static_cast<int64_t>(first);
  protect.lists = {begin, begin + static_cast<int64_t>(count)};
}

}  // namespace

CompressSpec SpecOfLayer(const CompressSpec& spec, const PlanCache& cache, size_t place) {
  CompressSpec cut = spec;
  cut.layers = {cache.layers[place].index};
  ScoreInputsSpec& in = cut.inputs;
  for (std::optional<TensorSpec>* tensor :
       {&in.q, &in.o, &in.lse, &in.a, &in.z, &in.sums, &in.sink_logits, &in.alibi_slopes}) {
    CutTensor(*tensor, place);
  }
  for (SequenceSpec& sequence : cut.sequences) CutProtect(sequence.protect, cache, place);
  return cut;
}

}  // namespace kvtriage
