// The ledger: one shared memory object per session in which the service notes, unit by unit, what
// it has moved. The service writes, the client maps it read-only. It outlives a killed service, so
// the client can tell which sequences are whole. Little-endian; fields marked atomic are stored
// with release and read with acquire.
//
// Order of stores: job_state FREE, all else with every unit PENDING, job_state OPEN; then per
// sequence (a move group): counts, each unit MOVING, the move, each unit DONE; units never touched
// UNHARMED; job_state CLOSED; then the answer is sent. At the end of a session, after its last job:
// session_state CLOSED.
//
// A CompressLayers stream has one slot from its first message to its end, with a key of zeros: it
// is known by the job_id that its first answer gave. A layer is a move group of its own there.
#ifndef KVTRIAGE_PROTO_WIRE_LEDGER_FORMAT_H_
#define KVTRIAGE_PROTO_WIRE_LEDGER_FORMAT_H_

#include <cstdint>

namespace kvtriage::wire {

inline constexpr char kLedgerMagic[4] = {'K', 'V', 'T', 'L'};
inline constexpr uint32_t kLedgerVersion = 1;
inline constexpr uint32_t kSlotAlignment = 64;

enum class LedgerSession : uint32_t { kLive = 1, kClosed = 2 };
enum class LedgerJob : uint32_t { kFree = 0, kOpen = 1, kClosed = 2 };
enum class LedgerOp : uint32_t {
  kNone = 0,
  kCompress = 1,
  kCompressLayers = 2,
  kObserve = 3,
  kRerotate = 4,
  kFuse = 5,
};
enum class LedgerUnit : uint32_t { kNone = 0, kPending = 1, kMoving = 2, kDone = 3, kUnharmed = 4 };

struct LedgerHeader {
  char magic[4];
  uint32_t version;
  uint64_t epoch;
  uint32_t slots;
  uint32_t slot_bytes;  // ((ledger_bytes - 64) / slots) rounded down to 64
  uint64_t session_id;
  uint32_t session_state;  // LedgerSession; atomic
  uint8_t zero[28];
};
static_assert(sizeof(LedgerHeader) == 64);

struct LedgerSlot {             // slot i stands at 64 + i*slot_bytes
  uint32_t job_state;           // LedgerJob; atomic
  uint32_t op;                  // LedgerOp
  uint8_t idempotency_key[16];  // zero for a stream
  uint64_t job_id;
  uint32_t units;
  uint32_t counts_per_unit;  // KV heads, or 1 when heads share a set
  uint32_t units_off;        // of LedgerUnitRecord[units], from the slot's start
  uint32_t counts_off;       // of uint32[units * counts_per_unit]: kept rows, from the slot's start
  uint8_t zero[16];
};
static_assert(sizeof(LedgerSlot) == 64);

struct LedgerUnitRecord {  // one (sequence, layer)
  uint32_t state;          // LedgerUnit; atomic
  uint32_t layer;
  uint64_t sequence_id;
};
static_assert(sizeof(LedgerUnitRecord) == 16);

}  // namespace kvtriage::wire

#endif  // KVTRIAGE_PROTO_WIRE_LEDGER_FORMAT_H_
