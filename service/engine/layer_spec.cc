#include "service/engine/layer_spec.h"

#include <optional>
#include <vector>

namespace kvtriage {
namespace {

void CutTensor(std::optional<TensorSpec>& tensor, size_t place) {
  if (!tensor) return;
  // Inside the region: the plan of the whole call has checked the last layer.
  tensor->offset += place * tensor->layer_stride;
  tensor->layers = 1;
  tensor->layer_stride = 0;
}

// Of what has one entry per layer, or one per (layer, KV head), the layer's part.
template <typename T>
void CutList(std::vector<T>& list, bool per_head, const PlanCache& cache, size_t place) {
  if (list.empty()) return;
  size_t first = place, count = 1;
  if (per_head) {
    first = 0;
    for (size_t l = 0; l < place; ++l) first += cache.layers[l].kv_heads();
    count = cache.layers[place].kv_heads();
  }
  const auto begin = list.begin() + static_cast<int64_t>(first);
  list = std::vector<T>(begin, begin + static_cast<int64_t>(count));
}

void CutProtect(ExplicitRows& protect, const PlanCache& cache, size_t place) {
  if (protect.granularity == Granularity::kPerSequence) return;
  CutList(protect.lists, protect.granularity == Granularity::kPerHead, cache, place);
}

void CutBudget(Budget& budget, const PlanCache& cache, size_t place) {
  CutList(budget.explicit_layers, false, cache, place);
  CutList(budget.explicit_heads, true, cache, place);
}

}  // namespace

CompressSpec SpecOfLayer(const CompressSpec& spec, const PlanCache& cache, size_t place) {
  CompressSpec cut = spec;
  cut.layers = {cache.layers[place].index};
  ScoreInputsSpec& in = cut.inputs;
  for (std::optional<TensorSpec>* tensor :
       {&in.q, &in.o, &in.lse, &in.a, &in.z, &in.sums, &in.sink_logits, &in.alibi_slopes,
        &in.output_projection, &in.query_mean, &in.query_covariance}) {
    CutTensor(*tensor, place);
  }
  CutBudget(cut.policy.budget, cache, place);
  for (SequenceSpec& sequence : cut.sequences) CutProtect(sequence.protect, cache, place);
  return cut;
}

}  // namespace kvtriage
