// Block tables and the plain numbers of the sequences in a call, checked against the cache.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_TABLES_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_TABLES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// "sequences[3]." + `name`
std::string SequenceField(size_t index, std::string_view name);

// The first `entries` ids of `table` are there and inside every view of `cache`. TABLE_TOO_SHORT,
// BLOCK_OUT_OF_RANGE (first bad index).
absl::Status CheckTable(const PlanCache& cache, std::span<const int32_t> table, uint64_t entries,
                        std::string_view field);
// The same for one view.
absl::Status CheckIds(std::span<const int32_t> ids, uint32_t num_blocks, std::string_view field);

// Fills in `spec`, `entries`, `triage.rows` and `triage.protect` of one sequence. TOO_MANY,
// TABLE_TOO_SHORT, BLOCK_OUT_OF_RANGE, and of the explicit protected rows FIELD_INVALID (number of
// lists), INDEX_OUT_OF_RANGE. Fields are relative to the request.
absl::Status PlanRows(const PlanCache& cache, const SequenceSpec& spec, size_t index,
                      PlanSequence& sequence);

// No block twice in one table, nor in two unless both mark it shared. BLOCK_DUPLICATE (field = the
// later table, index = the entry).
absl::Status CheckDuplicates(std::span<const PlanSequence> sequences);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_TABLES_H_
