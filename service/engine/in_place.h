// Writing in place under the ledger: a worker can tell at any moment, also after our death, which
// sequences are whole.
#ifndef KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_
#define KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/error.h"
#include "service/engine/move.h"
#include "service/memory/ledger.h"

namespace kvtriage {

// The answer to a call of which a write has failed by `cause`: MOVE_FAILED, or DEVICE_LOST with the
// device.
absl::Status WriteFailed(const absl::Status& cause, std::string_view field, std::string_view text,
                         CacheState state);

// How far a job that writes came.
struct MoveReport {
  absl::Status status;                // of the move that failed
  size_t sequences = 0;               // leading ones that are done (moved, or a noop)
  std::vector<uint64_t> bytes_moved;  // of each of those
};

// A slot of the session's ledger and where in it the units of a plan stand: unit = sequence *
// layers + first_layer + layer of the plan.
struct LedgerJob {
  Ledger* ledger = nullptr;
  uint32_t slot = 0;
  uint32_t counts_per_unit = 1;
  uint32_t layers = 0;       // of the slot, per sequence
  uint32_t first_layer = 0;  // of the plan's layers among those
};

// Opens the slot for every (sequence, layer) of the plan.
void OpenSlot(const LedgerJob& job, wire::LedgerOp op, const IdempotencyKey& key, uint64_t job_id,
              const CompressPlan& plan);

// Opens the slot for the plan's only sequence, calls `write`, which overwrites some of its rows
// where they stand, and closes the slot. An error of `write` leaves the units MOVING.
absl::Status WriteInPlace(const LedgerJob& job, wire::LedgerOp op, const IdempotencyKey& key,
                          uint64_t job_id, const CompressPlan& plan,
                          const std::function<absl::Status()>& write);

// Moves the sequences one by one and notes it in the open slot, which stays open. `results` and
// `writes` have one entry per sequence of the plan. Nothing can stop it but a failing move: the
// sequences behind that one are not touched. Writes nothing outside the plan's rows and the slot.
MoveReport MoveInPlace(Backend& backend, const LedgerJob& job, const CompressPlan& plan,
                       std::span<const TriageResult> results,
                       std::span<const SequenceWrites> writes);

// Notes, in the units of one layer, moves that an earlier call made; and that a layer's units of
// all `sequences` were never touched.
void NoteMoved(const LedgerJob& job, const PlanLayer& layer, std::span<const TriageResult> results);
void NoteUnharmed(const LedgerJob& job, size_t sequences);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_IN_PLACE_H_
