#include "client/cli/private_service.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/endpoint.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = "kvtriaged";
constexpr absl::Duration kStartLimit = absl::Seconds(10), kEndLimit = absl::Seconds(2);
constexpr absl::Duration kPoll = absl::Milliseconds(5);

bool Runnable(const std::string& path) {
  return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path);
}

// The end of the service's log: why it did not start.
std::string LastWords(const std::string& log) {
  std::ifstream in(log);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  constexpr size_t kMost = 2000;
  if (text.size() > kMost) text.erase(0, text.size() - kMost);
  return text;
}

}  // namespace

absl::StatusOr<std::string> FindServiceProgram() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error && Runnable(self.parent_path() / kName)) return (self.parent_path() / kName).string();
  const char* const path = std::getenv("PATH");
  for (const std::string& directory :
       std::vector<std::string>(absl::StrSplit(path != nullptr ? path : "", ':'))) {
    std::string candidate = absl::StrCat(directory, "/", kName);
    if (!directory.empty() && Runnable(candidate)) return candidate;
  }
  return absl::NotFoundError("no kvtriaged beside this program or in PATH");
}

absl::StatusOr<std::unique_ptr<PrivateService>> PrivateService::Start() {
  std::unique_ptr<PrivateService> service(new PrivateService);
  KVTRIAGE_ASSIGN_OR_RETURN(service->program_, FindServiceProgram());
  std::string directory = (fs::temp_directory_path() / "kvtriage-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {  // mode 0700: nobody else reaches the sockets
    return absl::UnavailableError(absl::StrCat("cannot make a directory like ", directory));
  }
  service->directory_ = directory;
  service->endpoint_ = absl::StrCat(directory, "/kvtriage.sock");
  KVTRIAGE_RETURN_IF_ERROR(service->Spawn());
  KVTRIAGE_RETURN_IF_ERROR(service->WaitListening());
  return service;
}

absl::Status PrivateService::Spawn() {
  std::vector<std::string> words = {program_,
                                    absl::StrCat("--listen.uds=", endpoint_),
                                    "--listen.metrics=127.0.0.1:0",
                                    "--exit-with-parent",
                                    "--drain.notice_ms=0",
                                    "--drain.deadline_ms=1000"};
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const std::string log = directory_ + "/log";
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int error =
      posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return absl::UnavailableError(
        absl::StrCat("starting ", program_, ": ", std::generic_category().message(error)));
  }
  return absl::OkStatus();
}

bool PrivateService::Ended(int wait_flags) {
  if (pid_ < 0) return true;
  pid_t ended = 0;
  do {
    ended = waitpid(pid_, nullptr, wait_flags);
  } while (ended < 0 && errno == EINTR);
  if (ended != 0) pid_ = -1;
  return ended != 0;
}

absl::Status PrivateService::WaitListening() {
  const absl::Time deadline = absl::Now() + kStartLimit;
  while (!client::CheckListening(endpoint_).ok()) {
    const bool ended = Ended(WNOHANG);
    if (ended || absl::Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(program_,
                                                 ended ? " ended at once" : " does not listen",
                                                 ": ", LastWords(directory_ + "/log")));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

PrivateService::~PrivateService() {
  if (pid_ > 0) kill(pid_, SIGTERM);
  const absl::Time deadline = absl::Now() + kEndLimit;
  while (!Ended(WNOHANG) && absl::Now() < deadline) absl::SleepFor(kPoll);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Ended(0);
  }
  std::error_code ignored;
  if (!directory_.empty()) fs::remove_all(directory_, ignored);
}

}  // namespace kvtriage::cli
