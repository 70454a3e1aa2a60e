#include "client/cpp/endpoint.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "client/cpp/local_error.h"
#include "client/cpp/owned_fd.h"

namespace kvtriage::client {

std::string SocketPath(const std::string& endpoint) {
  constexpr std::string_view kScheme = "unix:";
  std::string path = endpoint.starts_with(kScheme) ? endpoint.substr(kScheme.size()) : endpoint;
  if (path.starts_with("//")) path.erase(0, 2);  // unix:///absolute
  return path;
}

absl::Status CheckListening(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return LocalError(absl::StatusCode::kInvalidArgument, "bad_argument",
                      "a socket path has 1 to 107 bytes: " + path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const OwnedFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  if (error == EAGAIN) return absl::OkStatus();  // somebody listens and is busy
  const std::string text = path + ": " + std::generic_category().message(error);
  if (error == EACCES || error == EPERM) {
    return LocalError(absl::StatusCode::kPermissionDenied, "socket_denied", text);
  }
  return LocalError(absl::StatusCode::kUnavailable, "socket_missing", text);
}

absl::StatusOr<std::string> SiblingPath(const std::string& path, const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) {
    return LocalError(absl::StatusCode::kUnavailable, "not_kvtriage",
                      "the service named no fd socket");
  }
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? name : path.substr(0, slash + 1) + name;
}

}  // namespace kvtriage::client
