// Workers that die, as processes: what they lent is unmapped within a second, others see nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>

#include "proto/wire/ledger_format.h"
#include "service/session/fd_socket.h"
#include "tests/support/process_tables.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"
#include "tests/unit/session/session_house.h"
#include "tests/unit/session/worker_process.h"

namespace kvtriage {
namespace {

constexpr int kSecond = 1000;  // ms: the promise

struct Service {
  Service() {
    UnixListenerOptions options;
    options.path = dir.File("fd.sock");
    options.type = SOCK_SEQPACKET;
    socket.emplace(UnixListener::Bind(options).value(), SessionHouse::kEpoch,
                   PeerRule::OwnProcess(), FdSocketLimits(), house.doorkeeper, *house.table,
                   house.mapper, [](FdSocketEvent, const PeerProcess&) {});
  }
  // The worker's memory as a region of its session.
  uint64_t Lend(Session& session, WorkerProcess& worker) {
    const WorkerProcess::Report& report = worker.Start(session.token(), dir.File("fd.sock"));
    EXPECT_TRUE(report.bound);
    RegisterSpec spec;
    spec.regions.push_back(
        {report.ticket, 0, WorkerProcess::kBytes, true, 0, 0, std::string(8, 0x77)});
    const absl::StatusOr<RegisteredIds> ids = house.Register(session, spec);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? ids->region_ids[0] : 0;
  }

  const TempDir dir;
  SessionHouse house;
  std::optional<FdSocket> socket;
};

// Sources: https://github.com/LMCache/LMCache/issues/4014 ,
// https://github.com/LMCache/LMCache/issues/5265 , https://github.com/LMCache/LMCache/issues/4980
TEST(WorkerDeath, MemoryIsNotKeptAfterAKill) {
  WorkerProcess worker("death-plain", false), bystander("death-bystander", false);
  Service service;
  const auto session = service.house.Attach().value();
  const auto other = service.house.Attach().value();
  service.Lend(*session, worker);
  const uint64_t others_region = service.Lend(*other, bystander);
  ASSERT_EQ(CountMappings("death-plain"), 1u);

  worker.Kill();
  EXPECT_TRUE(WaitUntil([&] { return CountMappings("death-plain") == 0; }, kSecond));
  EXPECT_TRUE(
      WaitUntil([&] { return service.house.events.Count("over peer_died") == 1; }, kSecond));
  EXPECT_EQ(service.house.mapped, WorkerProcess::kBytes) << "the other session's";
  EXPECT_TRUE(WaitUntil([&] { return service.socket->connections() == 1; }, kSecond));
  EXPECT_FALSE(other->ended());
  EXPECT_EQ(other->memory().Pin(others_region)->data()[0], std::byte{0x77});
  EXPECT_EQ(ReasonOf(service.house.table->Find(SessionHouse::TokenOf(*session)).status()),
            "session_unknown");
}

// Its child keeps the sockets and the memory open: no end-of-file ever comes.
TEST(WorkerDeath, AForkedChildThatHoldsEverythingKeepsNothingAlive) {
  WorkerProcess worker("death-heir", true);
  Service service;
  const auto session = service.house.Attach().value();
  service.Lend(*session, worker);
  worker.Kill();
  EXPECT_TRUE(WaitUntil([&] { return CountMappings("death-heir") == 0; }, kSecond));
  EXPECT_TRUE(
      WaitUntil([&] { return service.house.events.Count("over peer_died") == 1; }, kSecond));
  EXPECT_TRUE(WaitUntil([&] { return service.socket->connections() == 0; }, kSecond))
      << "the connection that the child holds is closed by us";
}

TEST(WorkerDeath, TheRunningJobKeepsItsMemoryUntilItsEnd) {
  WorkerProcess worker("death-job", false);
  Service service;
  std::function<void()> job_ended;
  std::promise<void> asked;
  service.house.table->SetEngineEnd(
      [&](const std::shared_ptr<Session>&, std::function<void()> finished) {
        job_ended = std::move(finished);
        asked.set_value();
      });
  const auto session = service.house.Attach().value();
  const uint64_t region = service.Lend(*session, worker);
  RegionPin job = session->memory().Pin(region).value();
  worker.Kill();
  asked.get_future().wait();
  for (uint64_t i = 0; i < job.size(); ++i) job.data()[i] = std::byte{1};
  EXPECT_EQ(CountMappings("death-job"), 1u);
  job = RegionPin();
  job_ended();
  EXPECT_TRUE(WaitUntil([&] { return CountMappings("death-job") == 0; }, kSecond));
  EXPECT_TRUE(
      WaitUntil([&] { return service.house.events.Count("over peer_died") == 1; }, kSecond));
}

TEST(WorkerDeath, OneThatDiesBeforeItRegistersLeavesNoTicket) {
  WorkerProcess worker("death-ticket", false);
  Service service;
  const auto session = service.house.Attach().value();
  const size_t before = CountDescriptors();
  ASSERT_TRUE(worker.Start(session->token(), service.dir.File("fd.sock")).bound);
  worker.Kill();
  EXPECT_TRUE(
      WaitUntil([&] { return service.house.events.Count("over peer_died") == 1; }, kSecond));
  // Ledger, pidfd, connection and the waiting memfd; the ledger lives as long as somebody holds the
  // session.
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == before + 1; }, kSecond));
}

TEST(WorkerDeath, ATokenStolenByAnotherProcessIsRefused) {
  WorkerProcess worker("death-owner", false), thief("death-thief", false);
  Service service;
  const auto session = service.house.Attach().value();
  ASSERT_TRUE(worker.Start(session->token(), service.dir.File("fd.sock")).bound);
  const WorkerProcess::Report& report = thief.Start(session->token(), service.dir.File("fd.sock"));
  EXPECT_FALSE(report.bound);
  EXPECT_EQ(report.ticket, 0u);
  thief.Kill();
  EXPECT_FALSE(session->ended()) << "the thief's death is not the owner's";
  EXPECT_FALSE(FdClient(service.dir.File("fd.sock")).SayHello(session->token()).valid())
      << "nor is it ours";
}

// Many deaths in a row leave nothing behind.
TEST(WorkerDeath, ManyInARow) {
  constexpr int kWorkers = 20;
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<WorkerProcess>("death-many", i % 2 == 0));
  }
  Service service;
  const size_t before = CountDescriptors();
  std::vector<std::shared_ptr<Session>> sessions;
  for (auto& worker : workers) {
    sessions.push_back(service.house.Attach().value());
    service.Lend(*sessions.back(), *worker);
  }
  EXPECT_EQ(CountMappings("death-many"), size_t{kWorkers});
  for (auto& worker : workers) worker->Kill();
  EXPECT_TRUE(WaitUntil([&] { return CountMappings("death-many") == 0; }, kSecond));
  EXPECT_TRUE(
      WaitUntil([&] { return service.house.events.Count("over peer_died") == kWorkers; }, kSecond));
  for (const auto& session : sessions) {
    EXPECT_TRUE(session->memory().ListRegions().empty());
    EXPECT_TRUE(session->memory().ListCaches().empty());
  }
  sessions.clear();
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == before; }, kSecond));
  EXPECT_EQ(service.house.mapped, 0u);
}

// A killed owner leaves a socket file and a lock file, and neither stops the next start.
TEST(WorkerDeath, AListenerWhoseOwnerWasKilledIsTakenOver) {
  const TempDir dir;
  UnixListenerOptions options;
  options.path = dir.File("service.sock");
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::alarm(60);
    const auto listener = UnixListener::Bind(options);
    if (!listener.ok() || ::write(ready[1], "r", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(UnixListener::Bind(options).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ConnectTo(options.path, SOCK_STREAM).valid());
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(UnixListener::Bind(options).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

// Reading the ledger after the end, as a client does that lost its stream.
TEST(WorkerDeath, TheLedgerOfAnEndedSessionStaysReadable) {
  Service service;
  const auto session = service.house.Attach().value();
  FdClient client(service.dir.File("fd.sock"));
  const UniqueFd ledger = client.SayHello(session->token());
  ASSERT_TRUE(ledger.valid());
  void* view = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ledger.get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  auto& state = static_cast<wire::LedgerHeader*>(view)->session_state;
  EXPECT_EQ(std::atomic_ref<uint32_t>(state).load(), 1u);
  service.house.table->End(session, EndCause::kLease);
  EXPECT_TRUE(WaitUntil([&] { return std::atomic_ref<uint32_t>(state).load() == 2; }));
  ::munmap(view, 4096);
}

}  // namespace
}  // namespace kvtriage
