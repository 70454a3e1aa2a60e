// One line on the terminal that says how far long work is; nothing in a pipe.
#ifndef KVTRIAGE_CLIENT_CLI_PROGRESS_H_
#define KVTRIAGE_CLIENT_CLI_PROGRESS_H_

#include <cstddef>
#include <string_view>

namespace kvtriage::cli {

class Progress {
 public:
  explicit Progress(size_t steps);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Step `done` of `steps` (from 0) begins.
  void Show(size_t done, std::string_view what);

 private:
  const size_t steps_;
  const bool terminal_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_PROGRESS_H_
