#include "service/engine/in_place.h"

#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

std::vector<LedgerUnitId> UnitsOf(const CompressPlan& plan) {
  std::vector<LedgerUnitId> units;
  for (const PlanSequence& sequence : plan.sequences) {
    for (const PlanLayer& layer : plan.cache.layers) {
      units.push_back({sequence.spec->sequence_id, layer.index});
    }
  }
  return units;
}

// The ledger's units of one sequence: one per layer of the call.
class SequenceUnits {
 public:
  SequenceUnits(const LedgerJob& job, std::span<const PlanLayer> layers, size_t sequence)
      : job_(job), layers_(layers), first_(sequence * job.layers + job.first_layer) {}

  void SetCounts(const TriageResult& result) const {
    for (uint32_t l = 0; l < layers_.size(); ++l) {
      std::vector<uint32_t> counts(job_.counts_per_unit);
      const uint32_t heads = job_.counts_per_unit == 1 ? 1 : layers_[l].kv_heads();
      for (uint32_t h = 0; h < heads; ++h) {
        counts[h] = static_cast<uint32_t>(result.ListOf(l, h).size());
      }
      job_.ledger->SetCounts(job_.slot, Unit(l), counts);
    }
  }
  // Heads share one count.
  void SetRows(uint32_t rows) const {
    for (uint32_t l = 0; l < layers_.size(); ++l) {
      job_.ledger->SetCounts(job_.slot, Unit(l), {&rows, 1});
    }
  }
  void Set(wire::LedgerUnit state) const {
    for (uint32_t l = 0; l < layers_.size(); ++l) job_.ledger->SetUnit(job_.slot, Unit(l), state);
  }

 private:
  uint32_t Unit(uint32_t layer) const { return static_cast<uint32_t>(first_) + layer; }

  const LedgerJob& job_;
  const std::span<const PlanLayer> layers_;
  const size_t first_;
};

}  // namespace

absl::Status WriteFailed(const absl::Status& cause, std::string_view field, std::string_view text,
                         CacheState state) {
  const auto info = GetErrorInfo(cause);
  const bool lost = info && info->reason == ErrorReason::kDeviceLost;
  return Error(lost ? ErrorReason::kDeviceLost : ErrorReason::kMoveFailed, field, text)
      .State(state);
}

void OpenSlot(const LedgerJob& job, wire::LedgerOp op, const IdempotencyKey& key, uint64_t job_id,
              const CompressPlan& plan) {
  job.ledger->Open(job.slot, op, key, job_id, UnitsOf(plan), job.counts_per_unit);
}

absl::Status WriteInPlace(const LedgerJob& job, wire::LedgerOp op, const IdempotencyKey& key,
                          uint64_t job_id, const CompressPlan& plan,
                          const std::function<absl::Status()>& write) {
  OpenSlot(job, op, key, job_id, plan);
  const SequenceUnits units(job, plan.cache.layers, 0);
  units.SetRows(plan.sequences.front().triage.rows);
  units.Set(wire::LedgerUnit::kMoving);
  absl::Status status = write();
  if (status.ok()) units.Set(wire::LedgerUnit::kDone);
  job.ledger->Close(job.slot);
  return status;
}

MoveReport MoveInPlace(Backend& backend, const LedgerJob& job, const CompressPlan& plan,
                       std::span<const TriageResult> results,
                       std::span<const SequenceWrites> writes) {
  MoveReport report;
  for (size_t i = 0; i < results.size(); ++i) {
    const SequenceUnits units(job, plan.cache.layers, i);
    uint64_t bytes = 0;
    if (!results[i].noop) {
      if (i > 0) FaultPoint("move.between_groups");
      units.SetCounts(results[i]);
      units.Set(wire::LedgerUnit::kMoving);
      const absl::StatusOr<uint64_t> moved =
          MoveSequence(backend, plan, plan.sequences[i], results[i], writes[i], ActKind::kInPlace);
      if (!moved.ok()) {
        report.status = moved.status();
        break;
      }
      units.Set(wire::LedgerUnit::kDone);
      bytes = *moved;
    }
    report.bytes_moved.push_back(bytes);
    report.sequences = i + 1;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    // The one that failed stands at `sequences` and stays MOVING.
    const bool untouched = i < report.sequences ? results[i].noop : i > report.sequences;
    if (untouched) SequenceUnits(job, plan.cache.layers, i).Set(wire::LedgerUnit::kUnharmed);
  }
  return report;
}

void NoteMoved(const LedgerJob& job, const PlanLayer& layer,
               std::span<const TriageResult> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const SequenceUnits units(job, std::span(&layer, 1), i);
    if (!results[i].noop) units.SetCounts(results[i]);
    units.Set(results[i].noop ? wire::LedgerUnit::kUnharmed : wire::LedgerUnit::kDone);
  }
}

void NoteUnharmed(const LedgerJob& job, size_t sequences) {
  for (size_t i = 0; i < sequences; ++i) {
    const auto unit = static_cast<uint32_t>(i) * job.layers + job.first_layer;
    job.ledger->SetUnit(job.slot, unit, wire::LedgerUnit::kUnharmed);
  }
}

}  // namespace kvtriage
