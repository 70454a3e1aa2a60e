#include "service/memory/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "service/memory/memfd.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

constexpr uint64_t kHeaderBytes = sizeof(wire::LedgerHeader);

// Every store is a release store, so whoever sees one (the client, also after our death) sees all
// that came before it: the documented order of stores holds for every pair of fields, not only for
// the states.
template <typename T>
void Store(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

void StoreKey(uint8_t (&field)[16], const IdempotencyKey& key) {
  for (size_t i = 0; i < key.size(); ++i) Store(field[i], key[i]);
}

uint32_t SlotBytes(uint32_t bytes, uint32_t slots) {
  const uint64_t share = (uint64_t{bytes} - kHeaderBytes) / slots;
  return static_cast<uint32_t>(share / wire::kSlotAlignment * wire::kSlotAlignment);
}

absl::Status CannotMake(int error) {
  return Error(ErrorReason::kInternal, "", "cannot make the ledger")
      .Got(static_cast<uint64_t>(error));
}

}  // namespace

struct Ledger::Mapping {
  ~Mapping() { ::munmap(base, bytes); }

  wire::LedgerHeader& header() const { return *reinterpret_cast<wire::LedgerHeader*>(base); }
  wire::LedgerSlot& slot(uint32_t index) const {
    assert(index < slots);
    return *reinterpret_cast<wire::LedgerSlot*>(base + kHeaderBytes + uint64_t{index} * slot_bytes);
  }
  wire::LedgerUnitRecord& unit(uint32_t index, uint32_t unit) const {
    wire::LedgerSlot& in = slot(index);
    assert(unit < in.units);
    return reinterpret_cast<wire::LedgerUnitRecord*>(reinterpret_cast<std::byte*>(&in) +
                                                     in.units_off)[unit];
  }

  UniqueFd fd;
  std::byte* base = nullptr;
  uint32_t bytes = 0, slots = 0, slot_bytes = 0;
};

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Create(uint64_t epoch, uint64_t session_id,
                                                       uint32_t bytes, uint32_t slots) {
  const uint64_t least = kHeaderBytes + uint64_t{slots} * 2 * wire::kSlotAlignment;
  if (slots == 0 || bytes < least) return CannotMake(EINVAL);

  UniqueFd fd = MakeMemfd("kvtriage-ledger");
  if (!fd.valid() || ::ftruncate(fd.get(), bytes) != 0) return CannotMake(errno);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return CannotMake(errno);

  std::unique_ptr<Ledger> ledger(new Ledger);
  ledger->mapping_ = std::make_unique<Mapping>();
  Mapping& mapping = *ledger->mapping_;
  mapping.base = static_cast<std::byte*>(base);
  mapping.bytes = bytes;
  mapping.slots = slots;
  mapping.slot_bytes = SlotBytes(bytes, slots);
  // FUTURE_WRITE keeps our mapping writable and refuses every later one, also through
  // /proc/self/fd.
  if (::fcntl(fd.get(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return CannotMake(errno);
  }
  mapping.fd = std::move(fd);

  wire::LedgerHeader& header = mapping.header();
  std::memcpy(header.magic, wire::kLedgerMagic, sizeof(header.magic));
  header.version = wire::kLedgerVersion;
  header.epoch = epoch;
  header.slots = slots;
  header.slot_bytes = mapping.slot_bytes;
  header.session_id = session_id;
  Store(header.session_state, static_cast<uint32_t>(wire::LedgerSession::kLive));
  return ledger;
}

Ledger::~Ledger() = default;

int Ledger::fd() const { return mapping_->fd.get(); }
uint32_t Ledger::bytes() const { return mapping_->bytes; }
uint32_t Ledger::slots() const { return mapping_->slots; }

absl::Status Ledger::CheckFits(uint64_t units, uint64_t counts_per_unit) const {
  const uint64_t room = mapping_->slot_bytes - sizeof(wire::LedgerSlot);
  const std::optional<uint64_t> counts = CheckedMul(counts_per_unit, sizeof(uint32_t));
  const std::optional<uint64_t> each =
      counts ? CheckedAdd(*counts, sizeof(wire::LedgerUnitRecord)) : std::nullopt;
  const uint64_t fits = each ? room / *each : 0;
  if (units <= fits) return absl::OkStatus();
  return Error(ErrorReason::kLedgerTooSmall, "act.in_place.ledger_slot",
               "more units (sequences times layers) than a ledger slot holds")
      .Got(units)
      .Limit(fits);
}

void Ledger::Open(uint32_t slot, wire::LedgerOp op, const IdempotencyKey& key, uint64_t job_id,
                  std::span<const LedgerUnitId> units, uint32_t counts_per_unit) {
  assert(CheckFits(units.size(), counts_per_unit).ok());
  wire::LedgerSlot& out = mapping_->slot(slot);
  Store(out.job_state, static_cast<uint32_t>(wire::LedgerJob::kFree));
  FaultPoint("ledger.after_free");
  const uint32_t count = static_cast<uint32_t>(units.size());
  Store(out.op, static_cast<uint32_t>(op));
  StoreKey(out.idempotency_key, key);
  Store(out.job_id, job_id);
  Store(out.units, count);
  Store(out.counts_per_unit, counts_per_unit);
  Store(out.units_off, static_cast<uint32_t>(sizeof(wire::LedgerSlot)));
  Store(out.counts_off,
        static_cast<uint32_t>(sizeof(wire::LedgerSlot) + count * sizeof(wire::LedgerUnitRecord)));
  const std::vector<uint32_t> no_counts(counts_per_unit, 0);
  for (uint32_t i = 0; i < count; ++i) {
    wire::LedgerUnitRecord& record = mapping_->unit(slot, i);
    Store(record.layer, units[i].layer);
    Store(record.sequence_id, units[i].sequence_id);
    Store(record.state, static_cast<uint32_t>(wire::LedgerUnit::kPending));
    WriteCounts(slot, i, no_counts);  // what an older job left must not pass for this one's
  }
  Store(out.job_state, static_cast<uint32_t>(wire::LedgerJob::kOpen));
  FaultPoint("ledger.after_open");
}

void Ledger::WriteCounts(uint32_t slot, uint32_t unit, std::span<const uint32_t> counts) {
  wire::LedgerSlot& in = mapping_->slot(slot);
  assert(unit < in.units && counts.size() == in.counts_per_unit);
  uint32_t* out = reinterpret_cast<uint32_t*>(reinterpret_cast<std::byte*>(&in) + in.counts_off) +
                  uint64_t{unit} * in.counts_per_unit;
  for (size_t i = 0; i < counts.size(); ++i) Store(out[i], counts[i]);
}

void Ledger::SetCounts(uint32_t slot, uint32_t unit, std::span<const uint32_t> counts) {
  WriteCounts(slot, unit, counts);
  FaultPoint("ledger.after_counts");
}

void Ledger::SetUnit(uint32_t slot, uint32_t unit, wire::LedgerUnit state) {
  Store(mapping_->unit(slot, unit).state, static_cast<uint32_t>(state));
  if (state == wire::LedgerUnit::kMoving) FaultPoint("ledger.after_moving");
  if (state == wire::LedgerUnit::kDone) FaultPoint("ledger.after_done");
}

void Ledger::Close(uint32_t slot) {
  Store(mapping_->slot(slot).job_state, static_cast<uint32_t>(wire::LedgerJob::kClosed));
  FaultPoint("ledger.after_closed");
}

void Ledger::CloseSession() {
  Store(mapping_->header().session_state, static_cast<uint32_t>(wire::LedgerSession::kClosed));
}

}  // namespace kvtriage
