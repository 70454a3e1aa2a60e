#include "kvtriage/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "client/cpp/local_error.h"
#include "client/cpp/owned_fd.h"

namespace kvtriage::client {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status SystemError(const char* what) {
  const int error = errno;
  return LocalError(absl::StatusCode::kResourceExhausted, "host_memory",
                    std::string(what) + ": " + std::generic_category().message(error));
}

absl::StatusOr<std::byte*> Map(int fd, uint64_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return SystemError("mapping a memfd");
  return static_cast<std::byte*>(data);
}

}  // namespace

absl::StatusOr<HostMemory> HostMemory::Create(uint64_t bytes) {
  if (bytes == 0 || bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return LocalError(absl::StatusCode::kInvalidArgument, "bad_argument",
                      "size of host memory out of range");
  }
  const OwnedFd fd(memfd_create("kvtriage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return SystemError("sizing a memfd");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return SystemError("sealing a memfd");
  return Wrap(fd.get());
}

absl::StatusOr<HostMemory> HostMemory::Wrap(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return LocalError(absl::StatusCode::kInvalidArgument, "region_not_sealed",
                      "the descriptor is not a memfd sealed SHRINK, GROW and SEAL");
  }
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size <= 0) return SystemError("reading the size of a memfd");
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return SystemError("duplicating a descriptor");
  const uint64_t bytes = static_cast<uint64_t>(info.st_size);
  HostMemory memory(own, nullptr, bytes);  // closes `own` if mapping fails
  absl::StatusOr<std::byte*> data = Map(own, bytes);
  if (!data.ok()) return data.status();
  memory.data_ = *data;
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

RegionSpec HostMemory::Lend(Access access, uint32_t tag) const {
  RegionSpec spec;
  spec.fd = fd_;
  spec.size = size_;
  spec.access = access;
  spec.tag = tag;
  return spec;
}

}  // namespace kvtriage::client
