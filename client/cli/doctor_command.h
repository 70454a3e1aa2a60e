// `kvtriage doctor`: proves, step by step, that this process can share memory with a service.
#ifndef KVTRIAGE_CLIENT_CLI_DOCTOR_COMMAND_H_
#define KVTRIAGE_CLIENT_CLI_DOCTOR_COMMAND_H_

#include <span>
#include <string>

namespace kvtriage::cli {

// Returns the exit code (client/cli/README.md).
int DoctorCommand(std::span<const std::string> arguments);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DOCTOR_COMMAND_H_
