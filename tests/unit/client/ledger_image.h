// A ledger as the service writes it, made by hand for tests of the reader.
#ifndef KVTRIAGE_TESTS_UNIT_CLIENT_LEDGER_IMAGE_H_
#define KVTRIAGE_TESTS_UNIT_CLIENT_LEDGER_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "client/cpp/idempotency_key.h"
#include "proto/wire/ledger_format.h"

namespace kvtriage::client {

class LedgerImage {
 public:
  static constexpr uint64_t kEpoch = 77, kSession = 88;

  explicit LedgerImage(uint32_t bytes = 65536, uint32_t slots = 4)
      : memory_(bytes / sizeof(uint64_t)), slots_(slots) {
    wire::LedgerHeader& header = At<wire::LedgerHeader>(0);
    std::memcpy(header.magic, wire::kLedgerMagic, sizeof(header.magic));
    header.version = wire::kLedgerVersion;
    header.epoch = kEpoch;
    header.session_id = kSession;
    header.slots = slots;
    header.slot_bytes = SlotBytes();
    header.session_state = static_cast<uint32_t>(wire::LedgerSession::kLive);
  }

  uint32_t SlotBytes() const {
    const auto bytes = static_cast<uint32_t>((size() - sizeof(wire::LedgerHeader)) / slots_);
    return bytes - bytes % wire::kSlotAlignment;
  }
  size_t size() const { return memory_.size() * sizeof(uint64_t); }
  uint32_t slots() const { return slots_; }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(memory_.data()), size()};
  }
  std::span<std::byte> mutable_bytes() {
    return {reinterpret_cast<std::byte*>(memory_.data()), size()};
  }

  wire::LedgerHeader& header() { return At<wire::LedgerHeader>(0); }
  wire::LedgerSlot& slot(uint32_t i) { return At<wire::LedgerSlot>(SlotAt(i)); }
  wire::LedgerUnitRecord& unit(uint32_t slot_index, uint32_t i) {
    return At<wire::LedgerUnitRecord>(SlotAt(slot_index) + slot(slot_index).units_off +
                                      i * sizeof(wire::LedgerUnitRecord));
  }
  uint32_t& count(uint32_t slot_index, uint32_t i) {
    return At<uint32_t>(SlotAt(slot_index) + slot(slot_index).counts_off + i * sizeof(uint32_t));
  }

  // Opens a slot for `sequences` x `layers`, all units in `state`, counts 0.
  void Open(uint32_t slot_index, const IdempotencyKey& key, std::vector<uint64_t> sequences,
            uint32_t layers, uint32_t counts_per_unit, wire::LedgerUnit state,
            wire::LedgerJob job) {
    wire::LedgerSlot& to = slot(slot_index);
    to = {};
    std::memcpy(to.idempotency_key, key.data(), key.size());
    to.op = static_cast<uint32_t>(wire::LedgerOp::kCompress);
    to.units = static_cast<uint32_t>(sequences.size()) * layers;
    to.counts_per_unit = counts_per_unit;
    to.units_off = sizeof(wire::LedgerSlot);
    to.counts_off = to.units_off + to.units * static_cast<uint32_t>(sizeof(wire::LedgerUnitRecord));
    to.job_state = static_cast<uint32_t>(job);
    for (uint32_t i = 0; i < to.units; ++i) {
      unit(slot_index, i) = {static_cast<uint32_t>(state), i % layers, sequences[i / layers]};
    }
  }

 private:
  size_t SlotAt(uint32_t i) const { return sizeof(wire::LedgerHeader) + size_t{i} * SlotBytes(); }
  template <typename T>
  T& At(size_t offset) {
    return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(memory_.data()) + offset);
  }

  std::vector<uint64_t> memory_;  // 8-byte aligned
  uint32_t slots_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_TESTS_UNIT_CLIENT_LEDGER_IMAGE_H_
