// Two real processes decide together through one service, and one of them dies.
#include <signal.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "kvtriage/session.h"
#include "tests/integration/rank_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr char kRankProgram[] = KVTRIAGE_TEST_BIN_DIR "/rank_process";
constexpr uint32_t kKept = 50;
constexpr int64_t kLongMs = 50'000;  // for processes of a busy machine

class ClientGroups : public testing::Test {
 protected:
  void StartService(const std::vector<std::string>& flags = {}) {
    ASSERT_TRUE(service_.Start(flags));
    options_.endpoint = service_.endpoint();
    auto session = Session::Connect(options_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  std::unique_ptr<ChildProcess> StartRank(uint64_t seed, uint32_t rank, uint32_t ranks,
                                          uint32_t kept = kKept) {
    return ChildProcess::Start(kRankProgram,
                               {{service_.endpoint(), std::to_string(seed), std::to_string(rank),
                                 std::to_string(ranks), std::to_string(kept)},
                                {},
                                "",
                                ""});
  }
  static bool Says(const ChildProcess& rank, const std::string& line) {
    return WaitUntil(
        [&] { return ("\n" + rank.Output()).find("\n" + line + "\n") != std::string::npos; },
        kLongMs);
  }
  // Calls that have been planned: those that wait for other ranks have been.
  double Planned() {
    return service_.Metric("kvtriage_stage_duration_seconds_count", "stage=\"plan\"").value_or(0);
  }

  ServiceProcess service_{kServiceProgram};
  ConnectOptions options_;
  std::unique_ptr<Session> session_;
};

std::string Line(const std::vector<int32_t>& rows) {
  std::ostringstream line;
  for (const int32_t row : rows) line << row << " ";
  return line.str();
}

TEST_F(ClientGroups, TheServerSaysThatItKnowsGroups) {
  StartService();
  const auto info = session_->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(info->groups);
}

TEST_F(ClientGroups, TwoProcessesKeepTheModelsRows) {
  StartService();
  for (const uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto one = StartRank(seed, 1, 2);
    ASSERT_NE(one, nullptr);
    RankWorker zero(seed, 0, 2);
    zero.Lend(*session_);
    const CompressOutcome outcome =
        session_->Compress(zero.Request(kKept), {.deadline_ms = 120'000});
    ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
    const auto& lists = outcome.result->sequences[0].kept_sets.lists;
    ASSERT_EQ(lists.size(), 2u);
    ASSERT_TRUE(Says(*one, "done")) << one->ErrorOutput();
    EXPECT_NE(one->Output().find("moved"), std::string::npos) << one->Output();
    for (uint32_t layer = 0; layer < 2; ++layer) {
      const std::vector<int32_t> best = RankWorker::Best(seed, layer, 2, kKept);
      EXPECT_EQ(lists[layer], best);
      EXPECT_TRUE(Says(*one, Line(best))) << one->Output();
    }
    EXPECT_TRUE(zero.Holds(lists));
    EXPECT_TRUE(session_->ReleaseSequences({1}).ok());
  }
}

TEST_F(ClientGroups, ARankThatDiesEndsTheOthersUnharmed) {
  StartService();
  const auto dying = StartRank(7, 1, 3);
  ASSERT_NE(dying, nullptr);
  RankWorker zero(7, 0, 3);
  zero.Lend(*session_);
  CompressOutcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  std::thread call(
      [&] { outcome = session_->Compress(zero.Request(kKept), {.deadline_ms = 120'000}); });
  EXPECT_TRUE(WaitUntil([&] { return Planned() >= 2; }, kLongMs));
  dying->Signal(SIGKILL);
  call.join();
  // Long before the deadline, because of the death.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorDetails(outcome.status)->reason, "group_mismatch");
  EXPECT_TRUE(zero.Holds({}));
  // Nothing is left behind: the rank that lives goes on alone.
  CompressRequest alone = zero.Request(kKept);
  alone.group.reset();
  EXPECT_EQ(session_->Compress(alone).outcome, Outcome::kApplied);
}

TEST_F(ClientGroups, AServiceThatDiesBeforeTheFirstMoveHarmsNoRank) {
  StartService({"--fault=group.decided:kill"});
  const auto one = StartRank(4, 1, 2);
  ASSERT_NE(one, nullptr);
  RankWorker zero(4, 0, 2);
  zero.Lend(*session_);
  const CompressOutcome outcome = session_->Compress(zero.Request(kKept), {.deadline_ms = 120'000});
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_TRUE(zero.Holds({}));
  EXPECT_TRUE(Says(*one, "unchanged")) << one->Output();
}

// Rank 0 has moved both its layers, rank 1 none: each ledger says so.
TEST_F(ClientGroups, AServiceThatDiesBetweenTheRanksTellsEachItsOwn) {
  StartService({"--fault=ledger.after_done:kill:2"});
  const auto one = StartRank(4, 1, 2);
  ASSERT_NE(one, nullptr);
  RankWorker zero(4, 0, 2);
  zero.Lend(*session_);
  const CompressOutcome outcome = session_->Compress(zero.Request(kKept), {.deadline_ms = 120'000});
  EXPECT_EQ(outcome.outcome, Outcome::kApplied);
  EXPECT_EQ(outcome.fates.at(0).kept, kKept);
  EXPECT_TRUE(zero.Holds({RankWorker::Best(4, 0, 2, kKept), RankWorker::Best(4, 1, 2, kKept)}));
  EXPECT_TRUE(Says(*one, "unchanged")) << one->Output();
}

TEST_F(ClientGroups, AMissingRankIsAnsweredBeforeTheDeadline) {
  StartService();
  RankWorker zero(9, 0, 2);
  zero.Lend(*session_);
  const CompressOutcome outcome = session_->Compress(zero.Request(kKept), {.deadline_ms = 1'500});
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(GetErrorDetails(outcome.status)->reason, "group_mismatch");
  EXPECT_TRUE(zero.Holds({}));
}

TEST_F(ClientGroups, RanksThatWantDifferentThingsBothKeepTheirRows) {
  StartService();
  const auto one = StartRank(5, 1, 2, kKept + 1);
  ASSERT_NE(one, nullptr);
  RankWorker zero(5, 0, 2);
  zero.Lend(*session_);
  const CompressOutcome outcome = session_->Compress(zero.Request(kKept), {.deadline_ms = 120'000});
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(GetErrorDetails(outcome.status)->reason, "group_mismatch");
  EXPECT_TRUE(Says(*one, "unchanged")) << one->Output();
  EXPECT_TRUE(zero.Holds({}));
}

}  // namespace
}  // namespace kvtriage::client
