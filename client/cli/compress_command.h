// `kvtriage compress`: policies over a saved cache.
#ifndef KVTRIAGE_CLIENT_CLI_COMPRESS_COMMAND_H_
#define KVTRIAGE_CLIENT_CLI_COMPRESS_COMMAND_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Returns the exit code (client/cli/README.md).
int CompressCommand(std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_COMPRESS_COMMAND_H_
