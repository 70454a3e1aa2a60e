// Reads a session's ledger (proto/wire/ledger_format.h) without trusting a byte of it: it never
// reads outside the mapping, and says nothing about rows while somebody may still write them.
#ifndef KVTRIAGE_CLIENT_CPP_LEDGER_READER_H_
#define KVTRIAGE_CLIENT_CPP_LEDGER_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/idempotency_key.h"
#include "proto/wire/ledger_format.h"

namespace kvtriage::client {

// What the caller knows about the service when it reads.
enum class Writer {
  kActive,  // it may still store: only a CLOSED slot counts
  kQuiet,   // its process is gone, or the session is CLOSED: what stands there is final
};

enum class SlotState {
  kUnsettled,  // say nothing yet (kActive only)
  kUntouched,  // no job of this key opened the slot: not a byte of the cache was written by it
  kSettled,    // `units` say what happened
  kBroken,     // our key, but the rest makes no sense: assume the worst
};

struct SlotUnit {
  uint64_t sequence_id = 0;
  uint32_t layer = 0;
  wire::LedgerUnit state = wire::LedgerUnit::kNone;
  std::vector<uint32_t> counts;  // kept rows per KV head, or one number when heads share a set
};

struct SlotReading {
  SlotState state = SlotState::kUnsettled;
  std::vector<SlotUnit> units;
};

// Does not own the mapping. Thread-safe.
class LedgerReader {
 public:
  // `slots` as the service announced it.
  LedgerReader(std::span<const std::byte> memory, uint32_t slots);

  // Whether this is the ledger of that session: magic, version, numbers.
  absl::Status Check(uint64_t epoch, uint64_t session_id) const;

  uint32_t slots() const { return slots_; }
  // No job of this session will store anything any more.
  bool SessionClosed() const;

  SlotReading Read(uint32_t slot, const IdempotencyKey& key, Writer writer) const;
  // Of a CompressLayers stream, which is known by the job id of its first answer.
  SlotReading ReadStream(uint32_t slot, uint64_t job_id, Writer writer) const;

 private:
  template <typename IsOurs>
  SlotReading ReadIf(uint32_t slot, Writer writer, const IsOurs& is_ours) const;
  SlotReading ReadUnits(std::span<const std::byte> slot, const wire::LedgerSlot& head) const;

  std::span<const std::byte> memory_;
  uint32_t slots_;
  uint64_t slot_bytes_ = 0;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LEDGER_READER_H_
