// The ledger of a session, mapped for reading as a client maps it.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_LEDGER_VIEW_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_LEDGER_VIEW_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire/ledger_format.h"
#include "service/memory/ledger.h"

namespace kvtriage {

class LedgerView {
 public:
  explicit LedgerView(const Ledger& ledger) : bytes_(ledger.bytes()) {
    void* at = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, ledger.fd(), 0);
    if (at == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(at);
  }
  ~LedgerView() { ::munmap(base_, bytes_); }
  const wire::LedgerSlot& slot(uint32_t i) const {
    const auto* header = reinterpret_cast<const wire::LedgerHeader*>(base_);
    return *reinterpret_cast<const wire::LedgerSlot*>(base_ + 64 + i * header->slot_bytes);
  }
  std::vector<wire::LedgerUnit> States(uint32_t i) const {
    std::vector<wire::LedgerUnit> states;
    for (uint32_t u = 0; u < slot(i).units; ++u) {
      states.push_back(static_cast<wire::LedgerUnit>(Units(i)[u].state));
    }
    return states;
  }
  const wire::LedgerUnitRecord* Units(uint32_t i) const {
    return reinterpret_cast<const wire::LedgerUnitRecord*>(
        reinterpret_cast<const std::byte*>(&slot(i)) + slot(i).units_off);
  }
  std::vector<uint32_t> Counts(uint32_t i) const {
    const auto* counts = reinterpret_cast<const uint32_t*>(
        reinterpret_cast<const std::byte*>(&slot(i)) + slot(i).counts_off);
    return {counts, counts + slot(i).units * slot(i).counts_per_unit};
  }

 private:
  uint64_t bytes_;
  std::byte* base_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_LEDGER_VIEW_H_
