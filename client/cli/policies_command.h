// `kvtriage policies`: every policy a service knows, in its parts.
#ifndef KVTRIAGE_CLIENT_CLI_POLICIES_COMMAND_H_
#define KVTRIAGE_CLIENT_CLI_POLICIES_COMMAND_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Returns the exit code (client/cli/README.md).
int PoliciesCommand(std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_POLICIES_COMMAND_H_
