// Commands that are programs of their own: `kvtriage eval ...` is `kvtriage-eval ...`, found in
// PATH, as with git. So the Python package and anybody else can add a command.
#ifndef KVTRIAGE_CLIENT_CLI_OTHER_PROGRAM_H_
#define KVTRIAGE_CLIENT_CLI_OTHER_PROGRAM_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Becomes the program kvtriage-COMMAND with these arguments. KVTRIAGED tells it which service
// belongs to us, unless the environment says so already. Returns only when that failed: false
// without such a program, true when it is there and was not started, for the reason on stderr.
bool BecomeOtherProgram(const std::string& command, std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_OTHER_PROGRAM_H_
