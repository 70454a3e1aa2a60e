#include "service/app/process_signals.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>
#include <thread>

#include "service/app/exit_codes.h"

namespace kvtriage {
namespace {

// Only what may be called inside a signal handler.
void WriteLine(std::string_view line) {
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;  // nothing else can be done here
}

void OnBusError(int /*signal*/) {
  WriteLine("{\"level\":\"error\",\"event\":\"sigbus\"}\n");
  _exit(kExitFailed);
}

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void SetUpSignals() {
  const sigset_t stop = StopSignals();
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  struct sigaction bus {};
  bus.sa_handler = &OnBusError;
  sigaction(SIGBUS, &bus, nullptr);
}

bool WaitForStop(uint64_t timeout_ms) {
  const sigset_t stop = StopSignals();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left =
        std::max(std::chrono::nanoseconds(0), std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                  deadline - std::chrono::steady_clock::now()));
    const timespec wait{static_cast<time_t>(left.count() / 1'000'000'000),
                        static_cast<long>(left.count() % 1'000'000'000)};
    if (sigtimedwait(&stop, nullptr, &wait) > 0) return true;
    if (errno != EINTR) return false;
  }
}

void WaitForStop() {
  const sigset_t stop = StopSignals();
  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
}

bool StopWithParent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have died before the kernel knew our wish.
  return getppid() == parent;
}

void ExitAfter(uint64_t ms) {
  std::thread([ms] {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    WriteLine("{\"level\":\"error\",\"event\":\"shutdown_hangs\"}\n");
    _exit(kExitFailed);
  }).detach();
}

}  // namespace kvtriage
