#include "client/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace kvtriage::cli {

Progress::Progress(size_t steps) : steps_(steps), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::Show(size_t done, std::string_view what) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K[%zu/%zu] %s", done + 1, steps_, std::string(what).c_str());
  std::fflush(stderr);
}

}  // namespace kvtriage::cli
