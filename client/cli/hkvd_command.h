// `kvtriage hkvd`: which rows of a blend dump to recompute.
#ifndef KVTRIAGE_CLIENT_CLI_HKVD_COMMAND_H_
#define KVTRIAGE_CLIENT_CLI_HKVD_COMMAND_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Returns the exit code (client/cli/README.md).
int HkvdCommand(std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_HKVD_COMMAND_H_
