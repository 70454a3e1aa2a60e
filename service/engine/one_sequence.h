// Calls that overwrite rows of one sequence, planned as a Compress that keeps all of them: the same
// fences, views, tables and ledger checks, with errors named after the caller's own fields.
#ifndef KVTRIAGE_SERVICE_ENGINE_ONE_SEQUENCE_H_
#define KVTRIAGE_SERVICE_ENGINE_ONE_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/in_place.h"
#include "service/engine/job.h"
#include "service/engine/plan.h"

namespace kvtriage {

// In place, rows stay where they stand. `sequence` is copied; a plan made of the result points into
// it.
CompressSpec OneSequence(uint64_t cache_id, const std::vector<uint32_t>& layers,
                         const SequenceSpec& sequence, const ActSpec& act);

// Errors: SEQUENCE_STALE and those of PlanCompress, with "sequence." for "sequences[0].".
absl::Status PlanOneSequence(const Job& job, const CompressSpec& spec, CompressPlan& plan);

// "sequences[0].table" as the caller of a call about one sequence knows it.
absl::Status AsOneSequence(const absl::Status& status);

// The slot, with one count per unit.
LedgerJob SlotOf(const Job& job, const CompressSpec& spec, const CompressPlan& plan);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ONE_SEQUENCE_H_
