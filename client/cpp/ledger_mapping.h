// The ledger's memory, mapped for reading.
#ifndef KVTRIAGE_CLIENT_CPP_LEDGER_MAPPING_H_
#define KVTRIAGE_CLIENT_CPP_LEDGER_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace kvtriage::client {

class LedgerMapping {
 public:
  // `fd` may be closed afterwards. It must be at least `bytes` long and sealed against shrinking,
  // so that no read can fault. UNAVAILABLE (not_kvtriage).
  static absl::StatusOr<LedgerMapping> Map(int fd, uint32_t bytes);
  LedgerMapping(LedgerMapping&& other) noexcept;
  LedgerMapping& operator=(LedgerMapping&&) = delete;
  ~LedgerMapping();

  std::span<const std::byte> memory() const { return memory_; }

 private:
  explicit LedgerMapping(std::span<const std::byte> memory) : memory_(memory) {}
  std::span<const std::byte> memory_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LEDGER_MAPPING_H_
