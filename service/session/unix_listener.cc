#include "service/session/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

constexpr int kBacklog = 128;

// Paths are the operator's own, so these texts (unlike those of requests) may show them.
absl::Status Refused(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

class ScopedUmask {
 public:
  explicit ScopedUmask(mode_t mask) : old_(::umask(mask)) {}
  ~ScopedUmask() { ::umask(old_); }
  ScopedUmask(const ScopedUmask&) = delete;
  ScopedUmask& operator=(const ScopedUmask&) = delete;

 private:
  mode_t old_;
};

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether everybody may write there without the sticky bit.
absl::StatusOr<bool> OpenDirectory(const std::string& directory) {
  {
    const ScopedUmask mask(0027);
    if (::mkdir(directory.c_str(), 0750) != 0 && errno != EEXIST) {
      return Refused(directory, "cannot make the directory");
    }
  }
  struct stat info;
  if (::stat(directory.c_str(), &info) != 0) return Refused(directory, "cannot look at it");
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, ": not a directory"));
  }
  return (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
}

absl::StatusOr<UniqueFd> TakeLock(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0660));
  struct stat info;
  if (!lock.valid() || ::fstat(lock.get(), &info) != 0) return Refused(path, "cannot open");
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return Refused(path, "cannot lock");
  return absl::FailedPreconditionError(
      absl::StrCat(socket_path, ": another process owns this socket"));
}

// Call with the lock held: then nobody listens on a socket that is there.
absl::Status RemoveLeftover(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Refused(path, "cannot look at it");
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": a file that is not a socket is there; it is left alone"));
  }
  if (::unlink(path.c_str()) != 0) return Refused(path, "cannot remove the old socket");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UnixListener> UnixListener::Bind(const UnixListenerOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.path.empty()) return absl::InvalidArgumentError("the path of a socket is empty");
  if (options.path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(options.path, ": the path of a socket has ",
                                                   options.path.size(), " bytes, at most ",
                                                   sizeof(address.sun_path) - 1, " are possible"));
  }
  std::memcpy(address.sun_path, options.path.data(), options.path.size());

  UnixListener listener;
  const std::string directory = DirectoryOf(options.path);
  KVTRIAGE_ASSIGN_OR_RETURN(listener.directory_is_open_, OpenDirectory(directory));
  if (listener.directory_is_open_ && options.strict_dir) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": everybody may write there and it has no sticky bit"));
  }
  // The socket file is born with its final mode; there is no moment in which it is wider.
  const ScopedUmask mask(~options.mode & 0777);
  KVTRIAGE_ASSIGN_OR_RETURN(listener.lock_, TakeLock(options.path));
  KVTRIAGE_RETURN_IF_ERROR(RemoveLeftover(options.path));
  listener.socket_.reset(::socket(AF_UNIX, options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket_.valid()) return Refused(options.path, "cannot make a socket");
  if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Refused(options.path, "cannot bind");
  }
  struct stat info;
  if (::lstat(options.path.c_str(), &info) != 0) return Refused(options.path, "cannot look at it");
  listener.path_ = options.path;
  listener.device_ = info.st_dev;
  listener.inode_ = info.st_ino;
  if (::listen(listener.fd(), kBacklog) != 0) return Refused(options.path, "cannot listen");
  return listener;
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      socket_(std::move(other.socket_)),
      device_(other.device_),
      inode_(other.inode_),
      directory_is_open_(other.directory_is_open_) {}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this == &other) return *this;
  Close();
  path_ = std::exchange(other.path_, {});
  lock_ = std::move(other.lock_);
  socket_ = std::move(other.socket_);
  device_ = other.device_;
  inode_ = other.inode_;
  directory_is_open_ = other.directory_is_open_;
  return *this;
}

UnixListener::~UnixListener() { Close(); }

void UnixListener::Close() {
  socket_.reset();
  struct stat info;
  if (!path_.empty() && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ &&
      info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
  path_.clear();
  lock_.reset();  // the lock file stays: removing it would let two owners lock two files
}

}  // namespace kvtriage
