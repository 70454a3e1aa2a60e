// Memory that can be lent: an anonymous memfd, sealed so that neither side can resize it under the
// other. Never a named object: nobody else can unlink it, and nothing is left behind.
#ifndef KVTRIAGE_CLIENT_HOST_MEMORY_H_
#define KVTRIAGE_CLIENT_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::client {

// Owns a mapping and its descriptor. Move-only. Unregister before it is destroyed; a region that is
// still lent then keeps the pages alive in the service only.
class HostMemory {
 public:
  // `bytes` (> 0) of zeroed memory, backed when touched.
  static absl::StatusOr<HostMemory> Create(uint64_t bytes);
  // Maps a memfd that somebody else made (an engine's own cache) and keeps a duplicate of it. It
  // must be sealed SHRINK, GROW and SEAL already: INVALID_ARGUMENT otherwise.
  static absl::StatusOr<HostMemory> Wrap(int fd);

  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  int fd() const { return fd_; }

  // The whole memory as something to register.
  RegionSpec Lend(Access access = Access::kReadWrite, uint32_t tag = 0) const;

 private:
  HostMemory(int fd, std::byte* data, uint64_t size) : fd_(fd), data_(data), size_(size) {}

  int fd_ = -1;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_HOST_MEMORY_H_
