#include "client/cli/ask_service.h"

#include <iostream>

#include "client/cli/connect.h"
#include "client/cli/flags.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"--json", "", "print JSON"},
    {"--endpoint", "PATH", "the service's socket; else the default one, else a private service"},
    {"--help", "", "this text"},
};

absl::Status Ask(const Question& question, const Flags& flags) {
  KVTRIAGE_ASSIGN_OR_RETURN(Connection connection, Connect(flags.Get("--endpoint")));
  KVTRIAGE_ASSIGN_OR_RETURN(const client::ServerInfo info, connection.session->GetServerInfo());
  const auto print = flags.Has("--json") ? question.json : question.text;
  std::cout << print(info, connection.target.endpoint);
  return absl::OkStatus();
}

}  // namespace

int AskService(const Question& question, std::span<const std::string> arguments) {
  const absl::StatusOr<Flags> flags = Flags::Parse(kFlags, arguments);
  if (!flags.ok()) {
    std::cerr << "kvtriage " << question.command << ": " << flags.status().message() << "\n";
    return 2;
  }
  if (flags->Has("--help")) {
    std::cout << "kvtriage " << question.command << ": " << question.summary << "\n"
              << FlagHelp(kFlags);
    return 0;
  }
  if (const absl::Status status = Ask(question, *flags); !status.ok()) {
    std::cerr << "kvtriage " << question.command << ": " << status.message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace kvtriage::cli
