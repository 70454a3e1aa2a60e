// How a command reaches a service.
#ifndef KVTRIAGE_CLIENT_CLI_CONNECT_H_
#define KVTRIAGE_CLIENT_CLI_CONNECT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/private_service.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

// Where the service is; `service` is set when it is this command's own.
struct Target {
  std::unique_ptr<PrivateService> service;
  std::string endpoint;
};

struct Connection {
  Target target;  // outlives the session
  std::unique_ptr<client::Session> session;
};

// `endpoint` when given; else the default socket if it answers; else a private service, announced
// in a line on stderr.
absl::StatusOr<Target> FindService(const std::optional<std::string>& endpoint);

// FindService, then a session.
absl::StatusOr<Connection> Connect(const std::optional<std::string>& endpoint);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_CONNECT_H_
