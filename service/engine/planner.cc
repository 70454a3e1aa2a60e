#include "service/engine/planner.h"

#include <algorithm>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_budget.h"
#include "service/engine/plan_cache.h"
#include "service/engine/plan_inputs.h"
#include "service/engine/plan_scorer_tensors.h"
#include "service/engine/plan_tables.h"
#include "service/engine/rotation.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

absl::Status CheckLedger(const Ledger* ledger, const CompressSpec& spec, const PlanCache& cache) {
  const uint32_t slots = ledger == nullptr ? 0 : ledger->slots();
  if (spec.act.ledger_slot >= slots) {
    return Error(ErrorReason::kFieldInvalid, "act.in_place.ledger_slot", "no such ledger slot")
        .Got(spec.act.ledger_slot)
        .Limit(slots);
  }
  const uint64_t units = uint64_t{spec.sequences.size()} * cache.layers.size();
  return ledger->CheckFits(units, CountsPerUnit(spec, cache));
}

absl::Status PlanDestination(SessionMemory& memory, const CompressSpec& spec, CompressPlan& plan) {
  constexpr std::string_view kField = "act.copy_to.cache_id";
  KVTRIAGE_ASSIGN_OR_RETURN(plan.destination,
                            PlanLayers(memory, spec.act.destination_cache_id, spec.layers,
                                       /*written=*/true, kField, plan.pins));
  const size_t layers = plan.cache.registered->spec.layers.size();
  if (plan.destination.registered->spec.layers.size() != layers) {
    return Error(ErrorReason::kGeometryInvalid, kField, "other number of layers than the source")
        .Got(plan.destination.registered->spec.layers.size())
        .Limit(layers);
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckSameGeometry(plan.cache, plan.destination));
  KVTRIAGE_RETURN_IF_ERROR(CheckMovable(plan.destination, kField));
  if (spec.act.destination_cache_id == spec.cache_id) return absl::OkStatus();
  return CheckApart(memory, plan.cache, plan.destination, plan.pins);
}

}  // namespace

uint32_t CountsPerUnit(const CompressSpec& spec, const PlanCache& cache) {
  if (spec.policy.granularity != Granularity::kPerHead) return 1;
  uint32_t heads = 1;
  for (const PlanLayer& layer : cache.layers) heads = std::max(heads, layer.kv_heads());
  return heads;
}

absl::Status PlanCompress(SessionMemory& memory, const Ledger* ledger, const CompressSpec& spec,
                          CompressPlan& plan) {
  const bool in_place = spec.act.kind == ActKind::kInPlace;
  plan.renumber = spec.act.renumber;
  KVTRIAGE_ASSIGN_OR_RETURN(
      plan.cache, PlanLayers(memory, spec.cache_id, spec.layers, in_place, "cache_id", plan.pins));
  if (spec.act.kind == ActKind::kCopy) {
    KVTRIAGE_RETURN_IF_ERROR(PlanDestination(memory, spec, plan));
  }
  if (spec.act.kind != ActKind::kSelectOnly && !spec.act.rows_stay) {
    KVTRIAGE_RETURN_IF_ERROR(CheckMovable(plan.cache, "act"));
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckBudget(spec, plan.cache));
  KVTRIAGE_RETURN_IF_ERROR(CheckInputs(spec, plan.cache));
  plan.sequences.resize(spec.sequences.size());
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(PlanRows(plan.cache, spec.sequences[i], i, plan.sequences[i]));
    if (!spec.act.renumber) continue;
    KVTRIAGE_RETURN_IF_ERROR(CheckPlanes(plan.cache, spec.sequences[i].positions,
                                         spec.sequences[i].physical_len,
                                         SequenceField(i, "positions")));
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckDuplicates(plan.sequences));
  KVTRIAGE_RETURN_IF_ERROR(PlanInputs(memory, spec, plan));
  KVTRIAGE_RETURN_IF_ERROR(PlanScorerTensors(memory, spec, plan));
  FaultPoint("plan.after_pins");
  if (in_place) KVTRIAGE_RETURN_IF_ERROR(CheckLedger(ledger, spec, plan.cache));
  FaultPoint("plan.after_checks");
  return absl::OkStatus();
}

uint64_t SequenceRowBytes(SessionMemory& memory, uint64_t cache_id,
                          std::span<const uint32_t> indexes) {
  const auto cache = memory.FindCache(cache_id);
  if (!cache.ok()) return 0;
  const std::vector<LayerSpec>& layers = (*cache)->spec.layers;
  uint64_t row_bytes = 0;
  const auto add = [&row_bytes](const LayerSpec& layer) {
    row_bytes += layer.kv_heads * (layer.k.layout.row_bytes() + layer.v.layout.row_bytes());
  };
  if (indexes.empty()) std::for_each(layers.begin(), layers.end(), add);
  for (const uint32_t index : indexes) {
    if (index < layers.size()) add(layers[index]);
  }
  return row_bytes;
}

uint64_t EstimateBytes(SessionMemory& memory, const CompressSpec& spec) {
  uint64_t rows = 0;
  for (const SequenceSpec& sequence : spec.sequences) rows += sequence.physical_len;
  return rows * SequenceRowBytes(memory, spec.cache_id, spec.layers);
}

}  // namespace kvtriage
