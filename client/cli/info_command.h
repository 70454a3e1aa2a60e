// `kvtriage info`: what a service says about itself.
#ifndef KVTRIAGE_CLIENT_CLI_INFO_COMMAND_H_
#define KVTRIAGE_CLIENT_CLI_INFO_COMMAND_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Returns the exit code (client/cli/README.md).
int InfoCommand(std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_INFO_COMMAND_H_
