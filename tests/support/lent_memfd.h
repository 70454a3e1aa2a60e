// Memory as a worker lends it.
#ifndef KVTRIAGE_TESTS_SUPPORT_LENT_MEMFD_H_
#define KVTRIAGE_TESTS_SUPPORT_LENT_MEMFD_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "service/memory/unique_fd.h"

namespace kvtriage {

inline constexpr int kLentSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Every byte is `fill`. `seals` 0 leaves it unsealed.
inline UniqueFd MakeLentMemfd(uint64_t bytes, uint8_t fill = 0, int seals = kLentSeals,
                              const char* name = "lent") {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) std::abort();
  const std::vector<uint8_t> content(fill == 0 ? 0 : bytes, fill);
  if (::pwrite(fd.get(), content.data(), content.size(), 0) !=
      static_cast<ssize_t>(content.size())) {
    std::abort();
  }
  if (seals != 0 && ::fcntl(fd.get(), F_ADD_SEALS, seals) != 0) std::abort();
  return fd;
}

inline UniqueFd Duplicate(const UniqueFd& fd) {
  return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_LENT_MEMFD_H_
