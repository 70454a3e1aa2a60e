#include "client/cpp/fates.h"

#include <algorithm>

#include "kernels/core/checked_math.h"

namespace kvtriage::client {
namespace {

SequenceFate FateOfUnits(const std::vector<const SlotUnit*>& units, const Sequence& sequence,
                         uint32_t layers, uint32_t block_slots) {
  SequenceFate fate;
  fate.sequence_id = sequence.sequence_id;
  fate.outcome = Outcome::kDamaged;
  size_t done = 0, untouched = 0;
  for (const SlotUnit* const unit : units) {
    if (unit->state == wire::LedgerUnit::kDone) ++done;
    if (unit->state == wire::LedgerUnit::kPending || unit->state == wire::LedgerUnit::kUnharmed)
      ++untouched;
  }
  if (units.size() != layers) return fate;
  if (untouched == units.size()) fate.outcome = Outcome::kUnchanged;
  if (done != units.size()) return fate;

  for (const SlotUnit* const unit : units) {
    fate.kept_rows.insert(fate.kept_rows.end(), unit->counts.begin(), unit->counts.end());
  }
  fate.kept = *std::max_element(fate.kept_rows.begin(), fate.kept_rows.end());
  const uint64_t blocks = CeilDiv(uint64_t{sequence.first_slot} + fate.kept, block_slots);
  if (fate.kept == 0 || fate.kept > sequence.physical_len || blocks > sequence.table.size())
    return fate;
  fate.outcome = Outcome::kApplied;
  fate.kv_revision = sequence.kv_revision + 1;
  fate.table.assign(sequence.table.begin(), sequence.table.begin() + static_cast<int64_t>(blocks));
  return fate;
}

SequenceFate FateOf(const SequenceResult& sequence) {
  SequenceFate fate;
  fate.sequence_id = sequence.sequence_id;
  fate.outcome = Outcome::kApplied;
  fate.kept = sequence.kept;
  fate.kv_revision = sequence.kv_revision;
  fate.table = sequence.table;
  return fate;
}

std::vector<const SlotUnit*> UnitsOf(const SlotReading& reading, uint64_t sequence_id) {
  std::vector<const SlotUnit*> units;
  for (const SlotUnit& unit : reading.units) {
    if (unit.sequence_id == sequence_id) units.push_back(&unit);
  }
  return units;
}

std::vector<uint64_t> DamagedOf(const std::vector<SequenceFate>& fates) {
  std::vector<uint64_t> ids;
  for (const SequenceFate& fate : fates) {
    if (fate.outcome == Outcome::kDamaged) ids.push_back(fate.sequence_id);
  }
  return ids;
}

}  // namespace

std::vector<SequenceFate> FatesOfAnswer(const CompressResult& result) {
  std::vector<SequenceFate> fates;
  for (const SequenceResult& sequence : result.sequences) fates.push_back(FateOf(sequence));
  return fates;
}

std::vector<SequenceFate> FatesOfAnswer(const ObserveResult& result,
                                        const std::vector<ObserveStep>& steps) {
  std::vector<SequenceFate> fates;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (result.steps[i].evicted) {
      fates.push_back(FateOf(*result.steps[i].evicted));
      continue;
    }
    const Sequence& sequence = steps[i].sequence;
    SequenceFate fate;
    fate.sequence_id = sequence.sequence_id;
    fate.outcome = Outcome::kApplied;
    fate.kept = sequence.physical_len;
    fate.kv_revision = sequence.kv_revision;
    fate.table = sequence.table;
    fates.push_back(std::move(fate));
  }
  return fates;
}

std::vector<SequenceFate> FatesAll(const std::vector<ObserveStep>& steps, Outcome outcome) {
  std::vector<SequenceFate> fates;
  for (const ObserveStep& step : steps) {
    SequenceFate fate;
    fate.sequence_id = step.sequence.sequence_id;
    fate.outcome = step.may_evict() ? outcome : Outcome::kUnchanged;
    fates.push_back(std::move(fate));
  }
  return fates;
}

std::vector<SequenceFate> FatesOfSlot(const SlotReading& reading,
                                      const std::vector<ObserveStep>& steps, uint32_t layers,
                                      uint32_t block_slots) {
  if (reading.state == SlotState::kUntouched) return FatesAll(steps, Outcome::kUnchanged);
  if (reading.state != SlotState::kSettled) return FatesAll(steps, Outcome::kDamaged);
  std::vector<SequenceFate> fates = FatesAll(steps, Outcome::kUnchanged);
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<const SlotUnit*> units = UnitsOf(reading, steps[i].sequence.sequence_id);
    if (!units.empty()) fates[i] = FateOfUnits(units, steps[i].sequence, layers, block_slots);
  }
  return fates;
}

std::vector<SequenceFate> FatesAll(const std::vector<Sequence>& sequences, Outcome outcome) {
  std::vector<SequenceFate> fates;
  for (const Sequence& sequence : sequences) {
    SequenceFate fate;
    fate.sequence_id = sequence.sequence_id;
    fate.outcome = outcome;
    fates.push_back(std::move(fate));
  }
  return fates;
}

std::vector<SequenceFate> FatesOfSlot(const SlotReading& reading,
                                      const std::vector<Sequence>& sequences, uint32_t layers,
                                      uint32_t block_slots) {
  if (reading.state == SlotState::kUntouched) return FatesAll(sequences, Outcome::kUnchanged);
  if (reading.state != SlotState::kSettled) return FatesAll(sequences, Outcome::kDamaged);
  std::vector<SequenceFate> fates;
  for (const Sequence& sequence : sequences) {
    const std::vector<const SlotUnit*> units = UnitsOf(reading, sequence.sequence_id);
    fates.push_back(FateOfUnits(units, sequence, layers, block_slots));
  }
  return fates;
}

Outcome OutcomeOf(const std::vector<SequenceFate>& fates) {
  const auto any = [&](Outcome outcome) {
    return std::any_of(fates.begin(), fates.end(),
                       [&](const SequenceFate& fate) { return fate.outcome == outcome; });
  };
  if (any(Outcome::kDamaged)) return Outcome::kDamaged;
  return any(Outcome::kApplied) ? Outcome::kApplied : Outcome::kUnchanged;
}

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kApplied:
      return "applied";
    case Outcome::kUnchanged:
      return "unchanged";
    case Outcome::kDamaged:
      return "damaged";
    case Outcome::kUnavailable:
      return "unavailable";
  }
  return "unavailable";
}

std::vector<uint64_t> CompressOutcome::damaged() const { return DamagedOf(fates); }
std::vector<uint64_t> ObserveOutcome::damaged() const { return DamagedOf(fates); }

}  // namespace kvtriage::client
