// kvtriage: one table of commands.
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/compress_command.h"
#include "client/cli/doctor_command.h"
#include "client/cli/hkvd_command.h"
#include "client/cli/info_command.h"
#include "client/cli/other_program.h"
#include "client/cli/policies_command.h"

namespace kvtriage::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {
    {"info", "what a service is: version, devices, limits", &InfoCommand},
    {"policies", "every policy a service knows, in its parts", &PoliciesCommand},
    {"compress", "score a saved cache under policies and show what each keeps", &CompressCommand},
    {"hkvd", "which rows of reused chunks to recompute", &HkvdCommand},
    {"doctor", "prove that this process can share memory with a service", &DoctorCommand},
};

// A command of the Python package.
constexpr std::string_view kEval = "eval";

void PrintUsage(std::ostream& out) {
  out << "kvtriage COMMAND [FLAGS]; kvtriage COMMAND --help lists its flags\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(12 - command.name.size(), ' ') << command.summary
        << "\n";
  }
  out << "  eval        run a model under policies and budgets (Python: pip install "
         "'kvtriage[eval]')\n"
         "Any other COMMAND is the program kvtriage-COMMAND in PATH.\n";
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) {
    PrintUsage(std::cerr);
    return 2;
  }
  if (words[0] == "--help" || words[0] == "help") {
    PrintUsage(std::cout);
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << "kvtriage " KVTRIAGE_VERSION "\n";
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == words[0]) return command.run(std::span(words).subspan(1));
  }
  if (BecomeOtherProgram(words[0], std::span(words).subspan(1))) return 2;
  if (words[0] == kEval) {
    std::cerr << "kvtriage: no kvtriage-eval in PATH; it comes with the Python package: "
                 "pip install 'kvtriage[eval]'\n";
    return 2;
  }
  std::cerr << "kvtriage: no command named " << words[0] << "\n";
  PrintUsage(std::cerr);
  return 2;
}

}  // namespace
}  // namespace kvtriage::cli

int main(int argc, char** argv) { return kvtriage::cli::Main({argv + 1, argv + argc}); }
