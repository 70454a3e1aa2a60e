#include "client/cli/other_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <system_error>
#include <vector>

#include "client/cli/private_service.h"

namespace kvtriage::cli {

bool BecomeOtherProgram(const std::string& command, std::span<const std::string> arguments) {
  // A flag is no command, and a path would not be looked for in PATH.
  if (command.empty() || command[0] == '-' || command.find('/') != std::string::npos) return false;
  std::vector<std::string> words{"kvtriage-" + command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const absl::StatusOr<std::string> service = FindServiceProgram();
  if (service.ok()) setenv("KVTRIAGED", service->c_str(), 0);
  execvp(argv[0], argv.data());
  const int error = errno;
  if (error == ENOENT) return false;
  std::cerr << "kvtriage: " << words[0] << ": " << std::generic_category().message(error) << "\n";
  return true;
}

}  // namespace kvtriage::cli
