#include "client/cpp/ledger_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "client/cpp/local_error.h"

namespace kvtriage::client {

absl::StatusOr<LedgerMapping> LedgerMapping::Map(int fd, uint32_t bytes) {
  const auto bad = [](std::string_view text) {
    return LocalError(absl::StatusCode::kUnavailable, "not_kvtriage", text);
  };
  struct stat info {};
  if (bytes == 0 || fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(bytes)) {
    return bad("ledger: shorter than announced");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return bad("ledger: not sealed");
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return bad("ledger: cannot be mapped");
  return LedgerMapping(std::span(static_cast<const std::byte*>(data), bytes));
}

LedgerMapping::LedgerMapping(LedgerMapping&& other) noexcept
    : memory_(std::exchange(other.memory_, std::span<const std::byte>{})) {}

LedgerMapping::~LedgerMapping() {
  if (!memory_.empty()) munmap(const_cast<std::byte*>(memory_.data()), memory_.size());
}

}  // namespace kvtriage::client
