// The service's side of a session's ledger (proto/wire/ledger_format.h). Sealed so that the client
// can map it for reading only. Slot calls come from the lane's thread; CloseSession from any thread
// once the session's last job is over.
#ifndef KVTRIAGE_SERVICE_MEMORY_LEDGER_H_
#define KVTRIAGE_SERVICE_MEMORY_LEDGER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/wire/ledger_format.h"
#include "service/memory/unique_fd.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

struct LedgerUnitId {
  uint64_t sequence_id = 0;
  uint32_t layer = 0;
};

class Ledger {
 public:
  // A memfd of `bytes` (backed lazily), sealed SHRINK, GROW, FUTURE_WRITE, SEAL after our own
  // mapping. INTERNAL when the system refuses, or when `bytes` has no room for `slots` slots of one
  // unit.
  static absl::StatusOr<std::unique_ptr<Ledger>> Create(uint64_t epoch, uint64_t session_id,
                                                        uint32_t bytes, uint32_t slots);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  int fd() const;  // to hand to the client; stays ours
  uint32_t bytes() const;
  uint32_t slots() const;

  // LEDGER_TOO_SMALL (field "act.in_place.ledger_slot", got = units, limit = what fits) when a job
  // does not fit a slot. Pure.
  absl::Status CheckFits(uint64_t units, uint64_t counts_per_unit) const;

  // FREE, then everything with all units PENDING and counts 0, then OPEN. From here on rows may
  // move. Slots and units are in range and the job fits (CheckFits): the callers have checked.
  void Open(uint32_t slot, wire::LedgerOp op, const IdempotencyKey& key, uint64_t job_id,
            std::span<const LedgerUnitId> units, uint32_t counts_per_unit);
  void SetCounts(uint32_t slot, uint32_t unit, std::span<const uint32_t> counts);
  void SetUnit(uint32_t slot, uint32_t unit, wire::LedgerUnit state);
  void Close(uint32_t slot);

  void CloseSession();

 private:
  Ledger() = default;
  void WriteCounts(uint32_t slot, uint32_t unit, std::span<const uint32_t> counts);
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_LEDGER_H_
