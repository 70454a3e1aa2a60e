#include "service/memory/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <string_view>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

constexpr unsigned kMfdNoexecSeal = 0x0008;  // Linux 6.3; older headers lack the name
constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status WrongType(std::string_view text) { return Error(ErrorReason::kFdWrongType, "", text); }

}  // namespace

UniqueFd MakeMemfd(const char* name) {
  // Hardened hosts refuse a memfd that could be executed; old kernels do not know the flag.
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kMfdNoexecSeal));
  if (!fd.valid() && errno == EINVAL) {
    fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  return fd;
}

absl::StatusOr<MemfdFacts> CheckMemfd(int fd) {
  struct stat file;
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return WrongType("not a memory file");
  if (file.st_size <= 0) return WrongType("the memory file is empty");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return WrongType("not a memory file: it has no seals");
  struct statfs system;
  if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return WrongType("not a memory file of ordinary pages");
  }
  if ((seals & kNeededSeals) != kNeededSeals) {
    return Error(ErrorReason::kRegionNotSealed, "",
                 "the memory file needs the seals SHRINK, GROW and SEAL")
        .Got(static_cast<uint64_t>(seals))
        .Limit(kNeededSeals);
  }
  return MemfdFacts{file.st_dev, file.st_ino, static_cast<uint64_t>(file.st_size)};
}

absl::Status CheckMemfdAccess(int fd, bool writable) {
  const int flags = ::fcntl(fd, F_GETFL);
  const int mode = flags < 0 ? O_WRONLY : flags & O_ACCMODE;
  const bool readable = (flags & O_PATH) == 0 && (mode == O_RDONLY || mode == O_RDWR);
  if (!readable) return Error(ErrorReason::kRegionReadOnly, "", "the descriptor cannot be read");
  if (!writable) return absl::OkStatus();
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (mode != O_RDWR || seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return Error(ErrorReason::kRegionReadOnly, "", "the descriptor or its seals forbid writing");
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
