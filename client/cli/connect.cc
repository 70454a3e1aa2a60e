#include "client/cli/connect.h"

#include <iostream>
#include <utility>

#include "client/cpp/endpoint.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {

absl::StatusOr<Target> FindService(const std::optional<std::string>& endpoint) {
  if (endpoint.has_value()) return Target{nullptr, *endpoint};
  const absl::Status listening = client::CheckListening(client::kDefaultEndpoint);
  if (listening.ok()) return Target{nullptr, client::kDefaultEndpoint};
  KVTRIAGE_ASSIGN_OR_RETURN(std::unique_ptr<PrivateService> service, PrivateService::Start());
  std::cerr << "kvtriage: no service at " << listening.message() << "; started a private one ("
            << service->program() << "), which ends with this command\n";
  std::string path = service->endpoint();
  return Target{std::move(service), std::move(path)};
}

absl::StatusOr<Connection> Connect(const std::optional<std::string>& endpoint) {
  Connection connection;
  KVTRIAGE_ASSIGN_OR_RETURN(connection.target, FindService(endpoint));
  client::ConnectOptions options;
  options.endpoint = connection.target.endpoint;
  options.client = "kvtriage-cli/" KVTRIAGE_VERSION;
  KVTRIAGE_ASSIGN_OR_RETURN(connection.session, client::Session::Connect(options));
  return connection;
}

}  // namespace kvtriage::cli
