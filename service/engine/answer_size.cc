#include "service/engine/answer_size.h"

#include <variant>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "service/engine/plan_tables.h"
#include "service/engine/triage_budget.h"
#include "service/engine/triage_lists.h"

namespace kvtriage {
namespace {

constexpr uint64_t kFixedBytes = 512;     // header, timing, policy parts
constexpr uint64_t kSequenceBytes = 160;  // a SequenceResult without its arrays
constexpr uint64_t kLayerBytes = 64;      // a LayerOutcome
constexpr uint64_t kQualityBytes = 96;    // a Quality without its arrays
constexpr uint64_t kIndexBytes = 4;       // int32, float

uint64_t QualityBound(const LayerQuality& quality) {
  const uint64_t numbers = quality.head_mass_mean.size() + quality.head_mass_low.size() +
                           quality.head_error.size() + quality.head_error_high.size() +
                           quality.head_recall.size();
  return kQualityBytes + numbers * kIndexBytes;
}

}  // namespace

uint64_t TriageBound(const TriageResult& result, uint64_t rows, KeptFormat format) {
  uint64_t bytes = result.layers.size() * kLayerBytes + KeptBytes(result.kept, rows, format);
  for (const LayerQuality& quality : result.quality) bytes += QualityBound(quality);
  return bytes;
}

uint64_t ResponseBound(const CompressAnswer& answer) {
  const Budget& budget = answer.policy.budget;
  uint64_t bytes = kFixedBytes + answer.policy.name.size();
  bytes += (budget.explicit_layers.size() + budget.explicit_heads.size()) * kIndexBytes;
  for (const SequenceOutcome& sequence : answer.sequences) {
    bytes += kSequenceBytes + sequence.rewritten_bitmap.size();
    // Lists that are still there count as what they occupy, so that a store knows what it holds.
    bytes += TriageBound(sequence.triage, sequence.physical_len, KeptFormat::kIndices);
    if (!sequence.packed) continue;
    bytes += sequence.packed->counts.size() * sizeof(int32_t) + sequence.packed->bitmaps.size();
  }
  return bytes;
}

absl::StatusOr<uint64_t> AnswerBound(const CompressSpec& spec, const CompressPlan& plan) {
  // Per layer: five numbers of quality per head at most.
  uint64_t layers = 0;
  for (const PlanLayer& layer : plan.cache.layers) {
    layers += kLayerBytes;
    if (spec.measure.any()) layers += kQualityBytes + layer.kv_heads() * 5 * kIndexBytes;
  }
  uint64_t bytes = kFixedBytes + spec.policy.name.size();
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlanSequence& sequence = plan.sequences[i];
    const ListLayout lists = LayOutLists(sequence.triage, spec.policy.granularity);
    const auto keep = PlanKeep(sequence.triage, lists, spec.policy);
    if (!keep.ok()) return WithFieldPrefix(keep.status(), SequenceField(i, ""));
    bytes += kSequenceBytes + CeilDiv(sequence.entries, 8) + layers;
    // On average over the heads with an adaptive budget, so the total holds for that, too.
    uint64_t kept = 0;
    for (const uint32_t budget : keep->budgets) kept += budget;
    bytes += KeptBytes(keep->budgets.size(), kept, sequence.triage.rows, spec.format);
  }
  return bytes;
}

uint64_t ResponseBound(const RecomputeAnswer& answer) {
  return kFixedBytes + answer.rows.size() * 2 * kIndexBytes + answer.rows.size() / 8 + 1;
}

uint64_t Answer::bytes() const {
  if (const auto* compress = std::get_if<CompressAnswer>(&body)) return ResponseBound(*compress);
  if (const auto* observe = std::get_if<ObserveAnswer>(&body)) {
    return ResponseBound(observe->evicted) + observe->steps.size() * sizeof(ObserveAnswer::Step);
  }
  if (const auto* recompute = std::get_if<RecomputeAnswer>(&body)) return ResponseBound(*recompute);
  const auto* ids = std::get_if<RegisteredIds>(&body);
  if (ids == nullptr) return kFixedBytes;
  return kFixedBytes + (ids->region_ids.size() + ids->cache_ids.size()) * sizeof(uint64_t);
}

}  // namespace kvtriage
