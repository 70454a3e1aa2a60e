#include "tests/support/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

std::string NewFile() {
  std::string path = (std::filesystem::temp_directory_path() / "kvtriage-out-XXXXXX").string();
  const int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  close(fd);
  return path;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool changed = false;
    for (const std::string& change : changes) changed = changed || change.starts_with(name);
    if (!changed) all.push_back(text);
  }
  return all;
}

}  // namespace

std::unique_ptr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                  const Options& options) {
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->own_stdout_ = options.stdout_path.empty();
  child->own_stderr_ = options.stderr_path.empty();
  child->stdout_path_ = child->own_stdout_ ? NewFile() : options.stdout_path;
  child->stderr_path_ = child->own_stderr_ ? NewFile() : options.stderr_path;

  std::vector<std::string> words = {program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = Environment(options.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, child->stdout_path_.c_str(), kFlags,
                                   0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, child->stderr_path_.c_str(), kFlags,
                                   0600);
  const int error = posix_spawn(&child->pid_, program.c_str(), &actions, nullptr,
                                Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    child->pid_ = -1;
    ADD_FAILURE() << "cannot start " << program << ": error " << error;
    return nullptr;
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (running()) {
    Signal(SIGKILL);
    WaitExit();
  }
  std::error_code ignored;
  if (own_stdout_) std::filesystem::remove(stdout_path_, ignored);
  if (own_stderr_) std::filesystem::remove(stderr_path_, ignored);
}

void ChildProcess::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

bool ChildProcess::running() {
  if (pid_ < 0 || exit_.has_value()) return false;
  int state = 0;
  if (waitpid(pid_, &state, WNOHANG) != pid_) return true;
  exit_ = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return false;
}

std::optional<int> ChildProcess::WaitExit(int64_t limit_ms) {
  WaitUntil([this] { return !running(); }, limit_ms);
  return exit_;
}

std::string ChildProcess::Output() const { return ReadAll(stdout_path_); }
std::string ChildProcess::ErrorOutput() const { return ReadAll(stderr_path_); }

}  // namespace kvtriage
