#include "client/cpp/ledger_reader.h"

#include <cstring>

#include "client/cpp/local_error.h"
#include "kernels/core/checked_math.h"

namespace kvtriage::client {
namespace {

// `at` is 4-byte aligned: every caller computes it from aligned offsets.
uint32_t LoadAcquire(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
}

SlotReading Broken() { return {SlotState::kBroken, {}}; }

}  // namespace

LedgerReader::LedgerReader(std::span<const std::byte> memory, uint32_t slots)
    : memory_(memory), slots_(slots) {
  if (slots > 0 && memory.size() > sizeof(wire::LedgerHeader)) {
    slot_bytes_ = (memory.size() - sizeof(wire::LedgerHeader)) / slots;
    slot_bytes_ -= slot_bytes_ % wire::kSlotAlignment;
  }
}

absl::Status LedgerReader::Check(uint64_t epoch, uint64_t session_id) const {
  const auto bad = [](std::string_view text) {
    return LocalError(absl::StatusCode::kUnavailable, "not_kvtriage", text);
  };
  if (slot_bytes_ < sizeof(wire::LedgerSlot)) return bad("ledger: too small for its slots");
  wire::LedgerHeader header;
  std::memcpy(&header, memory_.data(), sizeof(header));
  if (std::memcmp(header.magic, wire::kLedgerMagic, sizeof(header.magic)) != 0) {
    return bad("ledger: wrong magic");
  }
  if (header.version != wire::kLedgerVersion) return bad("ledger: unknown version");
  if (header.epoch != epoch || header.session_id != session_id)
    return bad("ledger: of another session");
  if (header.slots != slots_ || header.slot_bytes != slot_bytes_)
    return bad("ledger: wrong slot size");
  return absl::OkStatus();
}

bool LedgerReader::SessionClosed() const {
  if (slot_bytes_ == 0) return false;
  return LoadAcquire(memory_.data() + offsetof(wire::LedgerHeader, session_state)) ==
         static_cast<uint32_t>(wire::LedgerSession::kClosed);
}

SlotReading LedgerReader::Read(uint32_t slot, const IdempotencyKey& key, Writer writer) const {
  return ReadIf(slot, writer, [&key](const wire::LedgerSlot& head) {
    return std::memcmp(head.idempotency_key, key.data(), key.size()) == 0;
  });
}

SlotReading LedgerReader::ReadStream(uint32_t slot, uint64_t job_id, Writer writer) const {
  return ReadIf(slot, writer, [job_id](const wire::LedgerSlot& head) {
    return head.op == static_cast<uint32_t>(wire::LedgerOp::kCompressLayers) &&
           head.job_id == job_id;
  });
}

template <typename IsOurs>
SlotReading LedgerReader::ReadIf(uint32_t slot, Writer writer, const IsOurs& is_ours) const {
  if (slot >= slots_ || slot_bytes_ < sizeof(wire::LedgerSlot)) return Broken();
  const auto bytes = memory_.subspan(sizeof(wire::LedgerHeader) + slot * slot_bytes_, slot_bytes_);
  const uint32_t job_state = LoadAcquire(bytes.data() + offsetof(wire::LedgerSlot, job_state));
  if (writer == Writer::kActive && job_state != static_cast<uint32_t>(wire::LedgerJob::kClosed)) {
    return {SlotState::kUnsettled, {}};
  }
  if (job_state == static_cast<uint32_t>(wire::LedgerJob::kFree))
    return {SlotState::kUntouched, {}};
  if (job_state > static_cast<uint32_t>(wire::LedgerJob::kClosed)) return Broken();
  wire::LedgerSlot head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (!is_ours(head)) {
    // Another call's. With an active service ours may still come.
    return {writer == Writer::kQuiet ? SlotState::kUntouched : SlotState::kUnsettled, {}};
  }
  return ReadUnits(bytes, head);
}

SlotReading LedgerReader::ReadUnits(std::span<const std::byte> slot,
                                    const wire::LedgerSlot& head) const {
  // 32-bit factors: the products fit 64 bits.
  const uint64_t unit_bytes = uint64_t{head.units} * sizeof(wire::LedgerUnitRecord);
  const auto count_total = CheckedMul(head.units, head.counts_per_unit);
  const auto count_bytes = count_total ? CheckedMul(*count_total, sizeof(uint32_t)) : std::nullopt;
  const bool fits = head.units_off >= sizeof(wire::LedgerSlot) && head.units_off % 8 == 0 &&
                    RangeFits(head.units_off, unit_bytes, slot.size()) &&
                    head.counts_off >= sizeof(wire::LedgerSlot) && head.counts_off % 4 == 0 &&
                    count_bytes.has_value() &&
                    RangeFits(head.counts_off, *count_bytes, slot.size());
  if (!fits || head.units == 0 || head.counts_per_unit == 0) return Broken();

  SlotReading reading{SlotState::kSettled, {}};
  reading.units.reserve(head.units);
  for (uint32_t i = 0; i < head.units; ++i) {
    const std::byte* const at = slot.data() + head.units_off + i * sizeof(wire::LedgerUnitRecord);
    const uint32_t state = LoadAcquire(at + offsetof(wire::LedgerUnitRecord, state));
    if (state < static_cast<uint32_t>(wire::LedgerUnit::kPending) ||
        state > static_cast<uint32_t>(wire::LedgerUnit::kUnharmed)) {
      return Broken();
    }
    wire::LedgerUnitRecord record;
    std::memcpy(&record, at, sizeof(record));
    SlotUnit unit{record.sequence_id, record.layer, static_cast<wire::LedgerUnit>(state), {}};
    unit.counts.resize(head.counts_per_unit);
    std::memcpy(
        unit.counts.data(),
        slot.data() + head.counts_off + uint64_t{i} * head.counts_per_unit * sizeof(uint32_t),
        uint64_t{head.counts_per_unit} * sizeof(uint32_t));
    reading.units.push_back(std::move(unit));
  }
  return reading;
}

}  // namespace kvtriage::client
