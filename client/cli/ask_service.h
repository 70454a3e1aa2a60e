// What `info` and `policies` share: flags, a service, its answer.
#ifndef KVTRIAGE_CLIENT_CLI_ASK_SERVICE_H_
#define KVTRIAGE_CLIENT_CLI_ASK_SERVICE_H_

#include <span>
#include <string>
#include <string_view>

#include "kvtriage/server_info.h"

namespace kvtriage::cli {

struct Question {
  std::string_view command;  // "info"
  std::string_view summary;  // for --help
  // Text for a terminal, and JSON. `endpoint` is where the service was found.
  std::string (*text)(const client::ServerInfo& info, const std::string& endpoint);
  std::string (*json)(const client::ServerInfo& info, const std::string& endpoint);
};

// Flags --endpoint, --json, --help. Returns the exit code.
int AskService(const Question& question, std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_ASK_SERVICE_H_
