#include "service/observe/fault_point.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

TEST(FaultPointNames, AreUnique) {
  const std::set<std::string_view> names(kFaultPointNames.begin(), kFaultPointNames.end());
  EXPECT_EQ(names.size(), kFaultPointNames.size());
}

#ifdef KVTRIAGE_FAULT_POINTS

// Runs `body` in a child and gives its wait status; the child must end within `limit_ms` or is
// killed.
template <typename Body>
int RunInChild(Body body, int limit_ms = 10'000) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  pollfd ended{pidfd, POLLIN, 0};
  if (::poll(&ended, 1, limit_ms) == 0) ::kill(child, SIGKILL);
  ::close(pidfd);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(FaultPoints, DoNothingUntilAsked) {
  ASSERT_TRUE(SetFaults("").ok());
  for (int i = 0; i < 5; ++i) FaultPoint("move.mid_rows");
  EXPECT_EQ(FaultPointPassings("move.mid_rows"), 5u);
  EXPECT_EQ(FaultPointPassings("ledger.after_open"), 0u);
  EXPECT_EQ(FaultPointPassings("no.such_point"), 0u);
}

TEST(FaultPoints, KillAtTheNamedPassingOnly) {
  const int status = RunInChild([] {
    if (!SetFaults("move.mid_rows:kill:3,ledger.after_open:kill").ok()) ::_exit(9);
    FaultPoint("move.mid_rows");
    FaultPoint("ledger.after_done");
    FaultPoint("move.mid_rows");
    if (FaultPointPassings("move.mid_rows") != 2) ::_exit(8);
    FaultPoint("move.mid_rows");
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  const int survivor = RunInChild([] {
    if (!SetFaults("move.mid_rows:kill:3").ok()) ::_exit(9);
    FaultPoint("move.mid_rows");
    FaultPoint("move.mid_rows");
  });
  EXPECT_TRUE(WIFEXITED(survivor));
  EXPECT_EQ(WEXITSTATUS(survivor), 0);
}

TEST(FaultPoints, DelayWaitsOnce) {
  const int status = RunInChild([] {
    if (!SetFaults("memory.after_map:delay=30").ok()) ::_exit(9);
    const auto start = std::chrono::steady_clock::now();
    FaultPoint("memory.after_map");
    if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(30)) ::_exit(8);
    if (!SetFaults("memory.after_map:delay=1000000").ok()) ::_exit(9);
    FaultPoint("memory.after_close");  // another point
  });
  EXPECT_TRUE(WIFEXITED(status)) << "it waits on";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(FaultPoints, UntilWaitsForTheFile) {
  const TempDir directory;
  const std::string file = directory.File("go");
  ASSERT_TRUE(SetFaults("plan.after_pins:until=" + file).ok());
  std::atomic<bool> passed{false};
  std::thread waiting([&passed] {
    FaultPoint("plan.after_pins");
    passed = true;
  });
  EXPECT_TRUE(WaitUntil([] { return FaultPointPassings("plan.after_pins") == 1; }));
  EXPECT_FALSE(passed);
  std::ofstream(file).close();
  waiting.join();
  FaultPoint("plan.after_pins");  // only once, file or not
  ASSERT_TRUE(SetFaults("").ok());
}

TEST(FaultPoints, HangHangs) {
  const int status = RunInChild(
      [] {
        if (!SetFaults("session.ending:hang").ok()) ::_exit(9);
        FaultPoint("session.ending");
      },
      100);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it went on";
}

TEST(FaultPoints, WrongSpecsAreRefusedAndChangeNothing) {
  ASSERT_TRUE(SetFaults("fd.after_hello:delay=1:2").ok());
  FaultPoint("fd.after_hello");
  for (const char* spec :
       {"nope:kill", "fd.after_hello", "fd.after_hello:", "fd.after_hello:explode",
        "fd.after_hello:kill:0", "fd.after_hello:kill:", "fd.after_hello:kill:x",
        "fd.after_hello:kill:-1", "fd.after_hello:kill:1:1", "fd.after_hello:delay",
        "fd.after_hello:delay=", "fd.after_hello:delay=1s",
        "fd.after_hello:until=", "fd.after_hello:kill,fd.after_hello:hang", ",",
        "fd.after_hello:kill:99999999999999999999"}) {
    EXPECT_EQ(SetFaults(spec).code(), absl::StatusCode::kInvalidArgument) << spec;
  }
  EXPECT_EQ(FaultPointPassings("fd.after_hello"), 1u);
  ASSERT_TRUE(SetFaults("").ok());
  EXPECT_EQ(FaultPointPassings("fd.after_hello"), 0u);
}

#endif  // KVTRIAGE_FAULT_POINTS

}  // namespace
}  // namespace kvtriage
