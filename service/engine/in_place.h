// Writing in place under the ledger: a worker can tell at any moment, also after our death, which
// sequences are whole.
#ifndef KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_
#define KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/move.h"
#include "service/memory/ledger.h"

namespace kvtriage {

// How far a job that writes came.
struct MoveReport {
  absl::Status status;                // of the move that failed
  size_t sequences = 0;               // leading ones that are done (moved, or a noop)
  std::vector<uint64_t> bytes_moved;  // of each of those
};

struct LedgerJob {
  Ledger* ledger = nullptr;
  uint32_t slot = 0;
  IdempotencyKey key{};
  uint64_t job_id = 0;
  uint32_t counts_per_unit = 1;
};

// Opens the slot, moves the sequences one by one and closes it. `results` and `writes` have one
// entry per sequence of the plan. Nothing can stop it but a failing move: the sequences behind that
// one are not touched. Writes nothing outside the plan's rows and the slot.
MoveReport MoveInPlace(Backend& backend, const LedgerJob& job, const CompressPlan& plan,
                       std::span<const TriageResult> results,
                       std::span<const SequenceWrites> writes);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_
