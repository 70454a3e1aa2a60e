#include "service/session/session_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "proto/wire/ledger_format.h"
#include "service/observe/fault_point.h"
#include "tests/support/lent_memfd.h"
#include "tests/support/process_tables.h"
#include "tests/support/reason_of.h"
#include "tests/support/wait_until.h"
#include "tests/unit/session/session_house.h"

namespace kvtriage {
namespace {

constexpr char kName[] = "session-table-test";
constexpr uint64_t kBytes = 1 << 16;

std::string TokenString(const Session& session) {
  return std::string(SessionHouse::TokenOf(session));
}

uint32_t LedgerState(const Ledger& ledger) {
  void* view = ::mmap(nullptr, ledger.bytes(), PROT_READ, MAP_SHARED, ledger.fd(), 0);
  uint32_t state = static_cast<wire::LedgerHeader*>(view)->session_state;
  ::munmap(view, ledger.bytes());
  return state;
}

class Sessions : public testing::Test {
 protected:
  uint64_t Lend(Session& session) {
    const UniqueFd fd = MakeLentMemfd(kBytes, 0, kLentSeals, kName);
    RegisterSpec spec;
    spec.regions.push_back(
        {session.memory().AddTicket(Duplicate(fd)).value(), 0, kBytes, true, 0, 0, ""});
    return house_.Register(session, spec).value().region_ids[0];
  }
  bool Over(size_t sessions = 1) {
    return WaitUntil([&] {
      size_t over = 0;
      for (const std::string& word : house_.events.all()) over += word.rfind("over ", 0) == 0;
      return over == sessions;
    });
  }
  SessionHouse house_;
};

TEST_F(Sessions, TokensHoldTheIdAndASecret) {
  const auto a = house_.Attach().value(), b = house_.Attach().value();
  uint64_t id = 0;
  for (int i = 7; i >= 0; --i) id = id << 8 | a->token()[i];
  EXPECT_EQ(id, a->id());
  EXPECT_NE(a->id(), b->id());
  EXPECT_NE(std::memcmp(a->token().data() + 8, b->token().data() + 8, 16), 0);
  EXPECT_EQ(house_.table->attached(), 2u);
  EXPECT_EQ(house_.table->Find(TokenString(*a)).value(), a);
}

TEST_F(Sessions, EveryWrongTokenIsTheSameUnknown) {
  const auto a = house_.Attach().value(), b = house_.Attach().value();
  std::set<std::string> answers;
  const std::string good = TokenString(*a);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      answers.insert(house_.table->Find(bad).status().ToString());
    }
  }
  answers.insert(house_.table->Find(good.substr(0, 23)).status().ToString());
  answers.insert(house_.table->Find(good + "x").status().ToString());
  answers.insert(house_.table->Find("").status().ToString());
  answers.insert(
      house_.table->Find(good.substr(0, 8) + TokenString(*b).substr(8)).status().ToString());
  house_.table->End(b, EndCause::kClient);
  answers.insert(house_.table->Find(TokenString(*b)).status().ToString());
  EXPECT_EQ(answers.size(), 1u) << *answers.begin();
  EXPECT_EQ(ReasonOf(house_.table->Find("").status()), "session_unknown");
  EXPECT_TRUE(house_.table->Find(good).ok());
}

TEST_F(Sessions, MemoryAndJobsNeedABoundOne) {
  const auto session = house_.Attach().value();
  EXPECT_EQ(ReasonOf(house_.table->FindBound(TokenString(*session)).status()), "session_not_bound");
  EXPECT_EQ(ReasonOf(house_.table->FindBound("nobody").status()), "session_unknown");
  EXPECT_EQ(session->ledger(), nullptr);
  ASSERT_TRUE(house_.table->Bind(TokenString(*session), {1, 2, 3}, UniqueFd()).ok());
  EXPECT_TRUE(house_.table->FindBound(TokenString(*session)).ok());
  ASSERT_NE(session->ledger(), nullptr);
  EXPECT_EQ(session->ledger()->slots(), 4u);
  EXPECT_EQ(session->ledger()->bytes(), 1u << 20);
  EXPECT_EQ(LedgerState(*session->ledger()), 1u);
}

TEST_F(Sessions, OnlyTheSameProcessMayBindAgain) {
  const auto session = house_.Attach().value();
  const std::string token = TokenString(*session);
  const PeerProcess process{1000, 1000, 4242};
  ASSERT_TRUE(house_.table->Bind(token, process, UniqueFd()).ok());
  const Ledger* ledger = session->ledger();
  EXPECT_TRUE(house_.table->Bind(token, process, UniqueFd()).ok());
  EXPECT_EQ(session->ledger(), ledger) << "the same ledger again";
  EXPECT_EQ(ReasonOf(house_.table->Bind(token, {1000, 1000, 4243}, UniqueFd()).status()),
            "session_unknown");
  EXPECT_EQ(ReasonOf(house_.table->Bind(token, {1001, 1000, 4242}, UniqueFd()).status()),
            "session_unknown");
  EXPECT_EQ(house_.events.Count("bound"), 1u);

  // A process in a namespace that we cannot see has no pid here; without a pidfd it cannot be told
  // again.
  const auto hidden = house_.Attach().value();
  ASSERT_TRUE(house_.table->Bind(TokenString(*hidden), {1000, 1000, 0}, UniqueFd()).ok());
  EXPECT_FALSE(house_.table->Bind(TokenString(*hidden), {1000, 1000, 0}, UniqueFd()).ok());
}

TEST_F(Sessions, PidfdsTellProcessesApartWhereTheKernelNumbersThem) {
  const auto own_pidfd = [] {
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  };
  if (ProcessNumber(own_pidfd().get()) == 0) GTEST_SKIP() << "pidfds have no numbers here";
  const auto session = house_.Attach().value();
  const std::string token = TokenString(*session);
  ASSERT_TRUE(house_.table->Bind(token, {0, 0, 0}, own_pidfd()).ok());
  EXPECT_TRUE(house_.table->Bind(token, {0, 0, 0}, own_pidfd()).ok());
  UniqueFd other(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)));
  if (!other.valid()) GTEST_SKIP() << "the parent cannot be seen";
  EXPECT_FALSE(house_.table->Bind(token, {0, 0, 0}, std::move(other)).ok());
}

TEST(SessionLimits, AttachedAndBound) {
  SessionLimits limits;
  limits.max_attached = 3;
  limits.max_bound = 2;
  SessionHouse house(limits);
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(house.Attach().value());
  absl::Status status = house.Attach().status();
  EXPECT_EQ(ReasonOf(status), "session_limit");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(GetErrorInfo(status)->retry_after_ms, 0u);
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(house.table->Bind(TokenString(*sessions[i]), {}, UniqueFd()).ok());
  status = house.table->Bind(TokenString(*sessions[2]), {}, UniqueFd()).status();
  EXPECT_EQ(ReasonOf(status), "session_limit");
  EXPECT_GT(GetErrorInfo(status)->retry_after_ms, 0u);
  EXPECT_FALSE(sessions[2]->bound());
  house.table->End(sessions[0], EndCause::kClient);
  ASSERT_TRUE(WaitUntil([&] { return house.events.Count("over client") == 1; }));
  EXPECT_TRUE(house.table->Bind(TokenString(*sessions[2]), {}, UniqueFd()).ok());
  EXPECT_TRUE(house.Attach().ok());
}

TEST(SessionLimits, AttachesASecond) {
  SessionLimits limits;
  limits.attach_per_second = 5;
  SessionHouse house(limits);
  int refused = 0;
  for (int i = 0; i < 50; ++i) refused += !house.Attach().ok();
  EXPECT_GE(refused, 40);
  EXPECT_LE(refused, 45);
  EXPECT_TRUE(WaitUntil([&] { return house.Attach().ok(); }));
}

TEST_F(Sessions, NobodyAttachesDuringADrain) {
  const auto session = house_.Attach().value();
  house_.table->StopAttaching();
  EXPECT_EQ(ReasonOf(house_.Attach().status()), "draining");
  EXPECT_TRUE(house_.table->Find(TokenString(*session)).ok()) << "who is attached stays";
}

TEST_F(Sessions, NoticesReachAll) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(house_.Attach().ok());
  house_.table->NotifyAll({NoticeKind::kDraining, 100, "drain"});
  EXPECT_EQ(house_.events.Count("notice drain"), 3u);
}

TEST_F(Sessions, TheFirstCauseOfAnEndWins) {
  const auto session = house_.AttachBound().value();
  house_.table->End(session, EndCause::kLease);
  house_.table->End(session, EndCause::kPeerDied);
  house_.table->EndAll(EndCause::kDrain);
  EXPECT_TRUE(session->ended());
  ASSERT_TRUE(Over());
  EXPECT_EQ(house_.events.all(),
            (std::vector<std::string>{"attached", "bound", "ended lease", "over lease"}));
  EXPECT_TRUE(house_.table->WaitAllClosed(1000));
}

TEST_F(Sessions, ThePeerIsToldWhyWeEndIt) {
  for (const EndCause cause : {EndCause::kDrain, EndCause::kPeerDied, EndCause::kProtocol}) {
    house_.table->End(house_.Attach().value(), cause);
    EXPECT_TRUE(WaitUntil(
        [&] { return house_.events.Count("over " + std::string(EndCauseName(cause))) == 1; }));
    EXPECT_EQ(house_.events.Count("notice " + std::string(EndCauseName(cause))), 1u);
  }
  house_.table->End(house_.Attach().value(), EndCause::kClient);
  EXPECT_TRUE(Over(4));
  EXPECT_EQ(house_.events.Count("notice client"), 0u);
}

// The whole order: token, jobs, memory, ledger, over.
TEST_F(Sessions, TheEndWaitsForTheRunningJobAndItsPins) {
  std::function<void()> finish_job;
  std::promise<void> asked;
  house_.table->SetEngineEnd([&](const std::shared_ptr<Session>&, std::function<void()> finished) {
    finish_job = std::move(finished);
    asked.set_value();
  });
  const auto session = house_.AttachBound().value();
  const uint64_t in_use = Lend(*session), idle = Lend(*session);
  RegionPin job = session->memory().Pin(in_use).value();
  EXPECT_EQ(house_.mapped, 2 * kBytes);

  house_.table->End(session, EndCause::kLease);
  EXPECT_EQ(ReasonOf(house_.table->FindBound(TokenString(*session)).status()), "session_unknown");
  asked.get_future().wait();
  EXPECT_TRUE(WaitUntil([&] { return house_.mapped == kBytes; })) << "idle memory goes at once";
  EXPECT_EQ(ReasonOf(session->memory().Pin(idle).status()), "memory_unknown");
  EXPECT_EQ(ReasonOf(session->memory().Pin(in_use).status()), "memory_unknown");
  house_.doorkeeper.RunAndWait([] {});
  EXPECT_EQ(LedgerState(*session->ledger()), 1u) << "a job may still store";
  EXPECT_FALSE(house_.table->WaitAllClosed(0));
  job.data()[0] = std::byte{1};

  finish_job();
  EXPECT_TRUE(WaitUntil([&] { return LedgerState(*session->ledger()) == 2; }));
  EXPECT_EQ(house_.events.Count("over lease"), 0u) << "a mapping is still open";
  job = RegionPin();
  ASSERT_TRUE(Over());
  EXPECT_EQ(house_.mapped, 0u);
  EXPECT_EQ(CountMappings(kName), 0u);
  EXPECT_TRUE(house_.table->WaitAllClosed(1000));
  const std::vector<std::string> words = house_.events.all();
  EXPECT_EQ((std::vector<std::string>(words.end() - 3, words.end())),
            (std::vector<std::string>{"unmapped", "ended lease", "over lease"}));
}

TEST_F(Sessions, EndAllLeavesNothing) {
  const size_t descriptors = CountDescriptors();
  {
    std::vector<std::shared_ptr<Session>> sessions;
    for (int i = 0; i < 10; ++i) {
      sessions.push_back(house_.AttachBound().value());
      Lend(*sessions.back());
      ASSERT_TRUE(sessions.back()->memory().AddTicket(MakeLentMemfd(4096)).ok());
    }
    EXPECT_EQ(house_.mapped, 10 * kBytes);
    house_.table->EndAll(EndCause::kDrain);
    EXPECT_TRUE(house_.table->WaitAllClosed(10'000));
    EXPECT_EQ(house_.table->attached(), 0u);
    EXPECT_EQ(house_.mapped, 0u);
  }
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors; }))
      << "ledgers and tickets are closed too";
  EXPECT_EQ(CountMappings("kvtriage-ledger"), 0u);
}

TEST_F(Sessions, CallbacksAreLetGoAtTheEnd) {
  auto stream = std::make_shared<int>(0);
  const auto session =
      house_.table
          ->Attach(
              {"test/1", 0, 0}, [stream](const SessionNotice&) {}, [stream](EndCause) {})
          .value();
  EXPECT_GT(stream.use_count(), 1);
  house_.table->End(session, EndCause::kClient);
  EXPECT_TRUE(house_.table->WaitAllClosed(10'000));
  house_.doorkeeper.RunAndWait([] {});
  EXPECT_EQ(stream.use_count(), 1) << "a session that outlives its end must not hold the stream";
}

TEST_F(Sessions, EndsRaceWithEverything) {
  for (int round = 0; round < 30; ++round) {
    const auto session = house_.Attach();
    if (!session.ok()) {
      ASSERT_EQ(ReasonOf(session.status()), "session_limit");
      break;
    }
    const std::string token = TokenString(**session);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { (void)house_.table->Bind(token, {1, 1, 1}, UniqueFd()); });
    threads.emplace_back([&] { (void)house_.table->Bind(token, {1, 1, 1}, UniqueFd()); });
    threads.emplace_back([&] { house_.table->End(*session, EndCause::kLease); });
    threads.emplace_back([&] { house_.table->End(*session, EndCause::kProtocol); });
    threads.emplace_back([&] { house_.table->NotifyAll({NoticeKind::kDraining, 1, "drain"}); });
    threads.emplace_back([&] {
      RegisterSpec spec;
      if (auto ticket = (*session)->memory().AddTicket(MakeLentMemfd(4096)); ticket.ok()) {
        spec.regions.push_back({*ticket, 0, 4096, true, 0, 0, ""});
        (void)house_.Register(**session, spec);
      }
    });
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(house_.table->WaitAllClosed(10'000));
    ASSERT_EQ(house_.mapped, 0u);
  }
  EXPECT_EQ(house_.table->attached(), 0u);
}

#ifdef KVTRIAGE_FAULT_POINTS
TEST_F(Sessions, TheEndPassesItsFaultPoints) {
  ASSERT_TRUE(SetFaults("").ok());
  const auto session = house_.AttachBound().value();
  Lend(*session);
  house_.table->End(session, EndCause::kClient);
  ASSERT_TRUE(Over());
  for (const char* point :
       {"session.ending", "session.before_close", "memory.before_close", "memory.after_close"}) {
    EXPECT_EQ(FaultPointPassings(point), 1u) << point;
  }
}
#endif

TEST(EndCauses, HaveNames) {
  EXPECT_EQ(EndCauseName(EndCause::kClient), "client");
  EXPECT_EQ(EndCauseName(EndCause::kLease), "lease");
  EXPECT_EQ(EndCauseName(EndCause::kPeerDied), "peer_died");
  EXPECT_EQ(EndCauseName(EndCause::kDrain), "drain");
  EXPECT_EQ(EndCauseName(EndCause::kProtocol), "protocol");
}

}  // namespace
}  // namespace kvtriage
