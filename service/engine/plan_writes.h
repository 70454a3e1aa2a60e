// What a plan will write once the kept sets are known: checked before the first byte changes.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_WRITES_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_WRITES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/plan.h"

namespace kvtriage {

// The writes of one sequence. Nothing is set for a noop or for select only but `blocks_used`.
struct SequenceWrites {
  uint32_t longest = 0;  // rows of the longest kept list
  uint64_t blocks_used =
      0;  // leading entries of the new table; of the old one when nothing is written
  // Entries of the new table that get bytes, ascending.
  std::vector<uint32_t> entries;
};

// In place, a list writes from its first row that moves to its end, and the rows before that are
// turned to another position; in a copy, all of it.
SequenceWrites PlanWrites(const CompressPlan& plan, const PlanSequence& sequence,
                          const TriageResult& result, ActKind act);

// Overwriting `rows` (ascending) where they stand, in every layer.
SequenceWrites PlanRowWrites(const PlanCache& cache, const PlanSequence& sequence,
                             std::span<const int32_t> rows);

// In place: BLOCK_SHARED (field "sequences[i].table", index and more_indices = entries) when a row
// would land in a block that others can read.
absl::Status CheckShared(const PlanSequence& sequence, size_t index, const SequenceWrites& writes);

// Copy: the blocks that will be written. DESTINATION_TOO_SMALL, BLOCK_OUT_OF_RANGE,
// DESTINATION_OVERLAP (with a source in the same cache, another destination, itself). `writes` has
// one entry per sequence.
absl::Status CheckDestinations(const CompressPlan& plan, std::span<const SequenceWrites> writes);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_WRITES_H_
