// Memfds: making one, and the checks that make a worker's one safe to map. The seals keep the peer
// from shrinking the file under our mapping (no SIGBUS) and from sealing it against our writes
// later. It can still punch holes; those read as zeros.
#ifndef KVTRIAGE_SERVICE_MEMORY_MEMFD_H_
#define KVTRIAGE_SERVICE_MEMORY_MEMFD_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {

// Which file it is, and its size, which the seals fix for good.
struct MemfdFacts {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t bytes = 0;
};

// A new one: sealable, close-on-exec, never executable. Invalid on failure (errno says why).
UniqueFd MakeMemfd(const char* name);

// What is asked of a descriptor when it is handed over, in this order: a regular file of 1 byte or
// more, seals can be read, on tmpfs (all FD_WRONG_TYPE), sealed against shrinking, growing and new
// seals (REGION_NOT_SEALED).
absl::StatusOr<MemfdFacts> CheckMemfd(int fd);

// What is asked of it when it is registered: it can be read, and written too if `writable`
// (REGION_READ_ONLY).
absl::Status CheckMemfdAccess(int fd, bool writable);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MEMFD_H_
