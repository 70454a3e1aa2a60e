// Paths of the service's sockets, and whether anybody listens there.
#ifndef KVTRIAGE_CLIENT_CPP_ENDPOINT_H_
#define KVTRIAGE_CLIENT_CPP_ENDPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvtriage::client {

// The path in an endpoint that may start with "unix:".
std::string SocketPath(const std::string& endpoint);

// Connects once and closes again, because gRPC does not say why a connection failed: UNAVAILABLE
// (socket_missing), PERMISSION_DENIED (socket_denied), both with the path.
absl::Status CheckListening(const std::string& path);

// `name` in the directory of `path`. Names with a slash are refused: a service names a neighbour
// only.
absl::StatusOr<std::string> SiblingPath(const std::string& path, const std::string& name);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_ENDPOINT_H_
