#include "service/engine/decisions.h"

#include <algorithm>
#include <vector>

namespace kvtriage {
namespace {

DecisionOutcome OutcomeOf(ActKind act, bool noop, bool failed) {
  if (failed) return DecisionOutcome::kFailed;
  if (noop) return DecisionOutcome::kUnchanged;
  return act == ActKind::kSelectOnly ? DecisionOutcome::kAdvised : DecisionOutcome::kApplied;
}

// Kept rows by where they stood, added up over layers and KV heads. A row that is sink and recent
// counts as a sink.
struct KeptRows {
  double lists = 0, sink = 0, middle = 0, recent = 0;
};

KeptRows CountKept(const CompressSpec& spec, const CompressPlan& plan, uint32_t rows,
                   const TriageResult& result) {
  const auto sinks = static_cast<int32_t>(std::min(spec.policy.protect.sinks, rows));
  KeptRows kept;
  for (uint32_t l = 0; l < plan.cache.layers.size(); ++l) {
    for (uint32_t h = 0; h < plan.cache.layers[l].kv_heads(); ++h) {
      const std::vector<int32_t>& list = result.ListOf(l, h);
      const auto newest =
          std::max(sinks, static_cast<int32_t>(rows - result.recent[result.NumberOf(l, h)]));
      const auto middle = std::lower_bound(list.begin(), list.end(), sinks);
      const auto recent = std::lower_bound(middle, list.end(), newest);
      kept.lists += 1;
      kept.sink += static_cast<double>(middle - list.begin());
      kept.middle += static_cast<double>(recent - middle);
      kept.recent += static_cast<double>(list.end() - recent);
    }
  }
  return kept;
}

uint64_t EvictedBytes(const CompressPlan& plan, uint32_t rows, const TriageResult& result) {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < plan.cache.layers.size(); ++l) {
    const PlanLayer& layer = plan.cache.layers[l];
    for (uint32_t h = 0; h < layer.kv_heads(); ++h) {
      bytes += (rows - result.ListOf(l, h).size()) * layer.row_bytes();
    }
  }
  return bytes;
}

// Whole blocks that the sequence needs no longer, in all layers.
uint64_t FreedBytes(const CompressPlan& plan, uint64_t entries, uint64_t blocks_used) {
  if (blocks_used >= entries) return 0;
  uint64_t bytes = 0;
  for (const PlanLayer& layer : plan.cache.layers) {
    bytes += layer.row_bytes() * layer.kv_heads() * layer.k.layout.block_slots;
  }
  return bytes * (entries - blocks_used);
}

std::vector<Decision::Layer> LayersOf(const CompressPlan& plan, uint32_t rows,
                                      const TriageResult& result) {
  std::vector<Decision::Layer> layers;
  size_t next = 0;  // of window_mass
  for (uint32_t l = 0; l < plan.cache.layers.size(); ++l) {
    const uint32_t heads = plan.cache.layers[l].kv_heads();
    double kept = 0, mass = 0;
    for (uint32_t h = 0; h < heads; ++h) {
      kept += static_cast<double>(result.ListOf(l, h).size());
      if (!result.window_mass.empty()) mass += result.window_mass[next + h];
    }
    next += heads;
    Decision::Layer layer{plan.cache.layers[l].layer_index, 1, -1};
    if (rows > 0) layer.kept_share = kept / heads / rows;
    if (!result.window_mass.empty()) layer.mass = mass / heads;
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace

void TellDecision(EngineObserver& observer, const CompressSpec& spec, const CompressPlan& plan,
                  const PlanSequence& sequence, const TriageResult& result,
                  const SequenceWrites& writes, bool failed, uint64_t moved_bytes) {
  const uint32_t rows = sequence.triage.rows;
  Decision decision;
  decision.policy = spec.policy.name;
  decision.outcome = OutcomeOf(spec.act.kind, result.noop, failed);
  decision.considered = rows;
  const KeptRows kept = CountKept(spec, plan, rows, result);
  if (kept.lists > 0) {
    decision.kept_sink = kept.sink / kept.lists;
    decision.kept_middle = kept.middle / kept.lists;
    decision.kept_recent = kept.recent / kept.lists;
  }
  if (decision.outcome == DecisionOutcome::kApplied) {
    decision.evicted_bytes = EvictedBytes(plan, rows, result);
    decision.reclaimable_bytes = FreedBytes(plan, sequence.entries, writes.blocks_used);
    decision.moved_bytes = moved_bytes;
  }
  decision.mass = result.window_mass;
  const std::vector<Decision::Layer> layers = LayersOf(plan, rows, result);
  decision.layers = layers;
  decision.quality = result.quality;
  observer.OnDecision(decision);
}

}  // namespace kvtriage
