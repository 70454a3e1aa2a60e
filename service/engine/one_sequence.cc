#include "service/engine/one_sequence.h"

#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_tables.h"
#include "service/engine/planner.h"

namespace kvtriage {

CompressSpec OneSequence(uint64_t cache_id, const std::vector<uint32_t>& layers,
                         const SequenceSpec& sequence, const ActSpec& act) {
  CompressSpec spec;
  spec.cache_id = cache_id;
  spec.layers = layers;
  spec.sequences = {sequence};
  spec.act = act;
  spec.act.rows_stay = act.kind == ActKind::kInPlace;
  spec.policy.score.scorer = Scorer::kRecency;
  spec.policy.granularity = Granularity::kPerLayer;  // one count per unit
  return spec;
}

absl::Status AsOneSequence(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  const std::string listed = SequenceField(0, "");
  if (!info || !info->field.starts_with(listed)) return status;
  return WithField(status, "sequence." + info->field.substr(listed.size()));
}

absl::Status PlanOneSequence(const Job& job, const CompressSpec& spec, CompressPlan& plan) {
  const absl::Status fence = job.sequences->Check(spec.sequences.front());
  if (!fence.ok()) return WithFieldPrefix(fence, "sequence.");
  Session& session = *job.call.session;
  plan.pins = PinSet(job.device);
  return AsOneSequence(PlanCompress(session.memory(), session.ledger(), spec, plan));
}

LedgerJob SlotOf(const Job& job, const CompressSpec& spec, const CompressPlan& plan) {
  return {job.call.session->ledger(), spec.act.ledger_slot, 1,
          static_cast<uint32_t>(plan.cache.layers.size()), 0};
}

}  // namespace kvtriage
