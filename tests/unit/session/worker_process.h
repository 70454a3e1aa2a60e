// A worker as a process of its own: it says HELLO, lends one memfd, and then does nothing until it
// is killed. Forked by the constructor, so make it before the test starts threads.
#ifndef KVTRIAGE_TESTS_UNIT_SESSION_WORKER_PROCESS_H_
#define KVTRIAGE_TESTS_UNIT_SESSION_WORKER_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/support/lent_memfd.h"
#include "tests/unit/session/fd_client.h"

namespace kvtriage {

class WorkerProcess {
 public:
  static constexpr uint64_t kBytes = 1 << 16;
  struct Report {
    bool bound = false;
    uint64_t ticket = 0;
    pid_t heir = 0;  // its child, which holds all its descriptors; 0 when it has none
  };

  // `name` is that of its memfd; `with_heir` makes it fork before it reports.
  WorkerProcess(std::string name, bool with_heir) : name_(std::move(name)), with_heir_(with_heir) {
    int to_child[2], from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) Live(to_child[0], from_child[1]);
    orders_.reset(to_child[1]);
    reports_.reset(from_child[0]);
    ::close(to_child[0]);
    ::close(from_child[1]);
  }
  ~WorkerProcess() {
    Kill();
    if (report_.heir != 0) ::kill(report_.heir, SIGKILL);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Lets it start with this token; waits until it has lent its memory.
  const Report& Start(const SessionToken& token, const std::string& path) {
    Order order{};
    order.token = token;
    std::strncpy(order.path, path.c_str(), sizeof(order.path) - 1);
    EXPECT_EQ(::write(orders_.get(), &order, sizeof(order)), static_cast<ssize_t>(sizeof(order)));
    EXPECT_EQ(::read(reports_.get(), &report_, sizeof(report_)),
              static_cast<ssize_t>(sizeof(report_)));
    return report_;
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  struct Order {
    SessionToken token;
    char path[108];
  };

  [[noreturn]] void Live(int orders, int reports) {
    ::alarm(60);  // nothing of a test outlives it for long, even if the test itself is killed
    Order order;
    if (::read(orders, &order, sizeof(order)) != static_cast<ssize_t>(sizeof(order))) ::_exit(1);
    Report report;
    FdClient client(order.path);
    const UniqueFd ledger = client.SayHello(order.token);
    report.bound = ledger.valid();
    const UniqueFd memory = MakeLentMemfd(kBytes, 0x77, kLentSeals, name_.c_str());
    const std::vector<uint64_t> tickets = client.Offer({memory.get()});
    if (!tickets.empty()) report.ticket = tickets[0];
    if (with_heir_) {
      report.heir = ::fork();
      if (report.heir == 0) {
        ::alarm(60);
        while (true) ::pause();
      }
    }
    if (::write(reports, &report, sizeof(report)) != static_cast<ssize_t>(sizeof(report)))
      ::_exit(1);
    while (true) ::pause();
  }

  const std::string name_;
  const bool with_heir_;
  pid_t pid_ = 0;
  UniqueFd orders_, reports_;
  Report report_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_SESSION_WORKER_PROCESS_H_
