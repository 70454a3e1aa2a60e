// A program that a test starts, and that never outlives it.
#ifndef KVTRIAGE_TESTS_SUPPORT_CHILD_PROCESS_H_
#define KVTRIAGE_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kvtriage {

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> arguments;    // without the program's own name
    std::vector<std::string> environment;  // "NAME=value", laid over ours
    // Where its output goes; empty: a file of its own, read back by Output and ErrorOutput.
    std::string stdout_path, stderr_path;
  };

  // Fails the running test and returns null when it cannot be started.
  static std::unique_ptr<ChildProcess> Start(const std::string& program, const Options& options);
  // SIGKILL, unless it has ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  bool running();
  // The exit code, or 128 + the number of the signal that ended it. Nothing when it still runs
  // after `limit_ms`.
  std::optional<int> WaitExit(int64_t limit_ms = 20'000);

  std::string Output() const;       // of stdout so far
  std::string ErrorOutput() const;  // of stderr so far

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  std::optional<int> exit_;
  std::string stdout_path_, stderr_path_;
  bool own_stdout_ = false, own_stderr_ = false;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_CHILD_PROCESS_H_
