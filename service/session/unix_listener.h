// A listening Unix socket with one owner. The owner holds a lock on `<path>.lock` for life, so a
// socket file without a locked lock file is a leftover and may go; anything else in its place is
// never removed.
#ifndef KVTRIAGE_SERVICE_SESSION_UNIX_LISTENER_H_
#define KVTRIAGE_SERVICE_SESSION_UNIX_LISTENER_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {

struct UnixListenerOptions {
  std::string path;
  int type = SOCK_STREAM;   // or SOCK_SEQPACKET
  mode_t mode = 0660;       // of the socket file: 0660, or 0600 for operators only
  bool strict_dir = false;  // refuse a directory in which everybody may replace the file
};

// Movable; closing it removes the socket file and gives the lock back.
class UnixListener {
 public:
  // Makes the directory (0750) if its parent exists and it does not. Changes the process's umask
  // for a moment: call it before other threads start. The socket never blocks. InvalidArgument: the
  // configuration is wrong (path over 107 bytes or empty, strict_dir violated). FailedPrecondition:
  // the place is taken (another owner, or a file that is not a socket). Unavailable: the system
  // refuses (directory missing, no permission, ...).
  static absl::StatusOr<UnixListener> Bind(const UnixListenerOptions& options);

  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  // Everybody may write in its directory and there is no sticky bit: worth a warning.
  bool directory_is_open() const { return directory_is_open_; }

 private:
  UnixListener() = default;
  void Close();

  std::string path_;
  UniqueFd lock_, socket_;
  dev_t device_ = 0;  // of the socket file, to remove ours and no other
  ino_t inode_ = 0;
  bool directory_is_open_ = false;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_UNIX_LISTENER_H_
