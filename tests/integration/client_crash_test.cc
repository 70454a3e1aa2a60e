// Either side dies, and the other knows exactly what is true.
#include <signal.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kvtriage/session.h"
#include "tests/integration/stamped_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr uint32_t kRows = 100, kKept = 40;

std::unique_ptr<Session> ConnectTo(const ServiceProcess& service) {
  ConnectOptions options;
  options.endpoint = service.endpoint();
  auto session = Session::Connect(options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

int64_t MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin)
      .count();
}

// ---- the service is killed in every phase of a job of three sequences ----------------------

struct KillPoint {
  const char* fault;
  Outcome fates[3];
};
void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.fault; }

constexpr Outcome kU = Outcome::kUnchanged, kA = Outcome::kApplied, kD = Outcome::kDamaged;
// Two layers: two units per sequence, so the n-th passing of a unit's point says which one it is.
constexpr KillPoint kKillPoints[] = {
    // The lane may take the job before the point is passed: it is held back.
    {"lane.job_start:delay=5000,admit.after_enqueue:kill", {kU, kU, kU}},
    {"lane.job_start:kill", {kU, kU, kU}},
    {"plan.after_pins:kill", {kU, kU, kU}},
    {"lane.after_select:kill", {kU, kU, kU}},
    {"ledger.after_free:kill", {kU, kU, kU}},
    {"ledger.after_open:kill", {kU, kU, kU}},
    {"ledger.after_counts:kill", {kU, kU, kU}},
    {"ledger.after_moving:kill", {kD, kU, kU}},
    {"move.mid_rows:kill", {kD, kU, kU}},
    {"ledger.after_done:kill", {kD, kU, kU}},
    {"ledger.after_done:kill:2", {kA, kU, kU}},
    {"move.between_groups:kill", {kA, kU, kU}},
    {"ledger.after_moving:kill:4", {kA, kD, kU}},
    {"move.mid_rows:kill:3", {kA, kA, kD}},
    {"ledger.after_done:kill:6", {kA, kA, kA}},
    {"ledger.after_closed:kill", {kA, kA, kA}},
    {"result.before_store:kill", {kA, kA, kA}},
    {"result.after_store:kill", {kA, kA, kA}},
    {"rpc.before_finish:kill:2", {kA, kA, kA}},  // the first is the registration
};

class ServiceKilled : public testing::TestWithParam<KillPoint> {};

TEST_P(ServiceKilled, EverySequencesFateIsTrue) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({std::string("--fault=") + GetParam().fault}));
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker worker(3, kRows);
  worker.Lend(*session);
  const auto begin = std::chrono::steady_clock::now();
  const CompressOutcome outcome =
      session->Compress(worker.Request({worker.Of(0), worker.Of(1), worker.Of(2)}, kKept));
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  EXPECT_LT(MillisecondsSince(begin), 10'000);
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_FALSE(outcome.result.has_value());
  EXPECT_EQ(outcome.quarantine, 0u);  // the process is gone: nothing writes any more

  ASSERT_EQ(outcome.fates.size(), 3u);
  bool damaged = false, applied = false;
  for (uint32_t i = 0; i < 3; ++i) {
    const SequenceFate& fate = outcome.fates[i];
    EXPECT_EQ(fate.sequence_id, i + 1);
    EXPECT_EQ(OutcomeName(fate.outcome), OutcomeName(GetParam().fates[i])) << "sequence " << i;
    if (fate.outcome == Outcome::kUnchanged) worker.ExpectUntouched(i);
    if (fate.outcome == Outcome::kApplied) {
      EXPECT_EQ(fate.kept, kKept);
      EXPECT_EQ(fate.table.size(), 3u);
      Sequence now = worker.Of(i);
      now.table = fate.table;
      worker.ExpectTokens(now, i, StampedWorker::StreamingRows(kRows, kKept));
    }
    damaged = damaged || fate.outcome == Outcome::kDamaged;
    applied = applied || fate.outcome == Outcome::kApplied;
  }
  EXPECT_EQ(outcome.outcome, damaged ? kD : applied ? kA : kU);
  EXPECT_EQ(outcome.damaged().size(), damaged ? 1u : 0u);
}

std::string NameOf(const testing::TestParamInfo<KillPoint>& info) {
  std::string name = info.param.fault;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Phases, ServiceKilled, testing::ValuesIn(kKillPoints), NameOf);

// No point chosen: whenever it dies, what is said of each sequence is what its bytes say.
TEST(ServiceKilledAtAnyMoment, NoFateIsWrong) {
  constexpr uint32_t kSequences = 8, kManyRows = 4000;
  int outcomes[4] = {};
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServiceProcess service(kServiceProgram);
    ASSERT_TRUE(service.Start());
    const auto session = ConnectTo(service);
    ASSERT_NE(session, nullptr);
    StampedWorker worker(kSequences, kManyRows);
    worker.Lend(*session);
    std::vector<Sequence> sequences;
    for (uint32_t i = 0; i < kSequences; ++i) sequences.push_back(worker.Of(i));
    const CompressRequest request = worker.Request(sequences, kManyRows / 2);
    std::thread killer([&service, seed] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::mt19937_64(seed)() % 5000));
      service.process().Signal(SIGKILL);
    });
    const CompressOutcome outcome = session->Compress(request);
    killer.join();
    ++outcomes[static_cast<int>(outcome.outcome)];
    ASSERT_EQ(outcome.fates.size(), kSequences);
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (outcome.fates[i].outcome == Outcome::kUnchanged) worker.ExpectUntouched(i);
      if (outcome.fates[i].outcome == Outcome::kApplied) {
        worker.ExpectTokens(worker.Of(i), i,
                            StampedWorker::StreamingRows(kManyRows, kManyRows / 2));
      }
    }
  }
  std::printf("applied %d, unchanged %d, damaged %d, unavailable %d\n", outcomes[0], outcomes[1],
              outcomes[2], outcomes[3]);
}

TEST(ServiceKilledInACopy, TheSourceStaysValid) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({"--fault=copy.mid_rows:kill"}));
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker worker(2, kRows);
  worker.Lend(*session);
  Sequence sequence = worker.Of(0);
  sequence.destination = worker.Of(1).table;
  CompressRequest request = worker.Request({sequence}, kKept);
  request.act = CopyTo{worker.cache()};
  const CompressOutcome outcome = session->Compress(request);
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(outcome.quarantine, 0u);
  worker.ExpectUntouched(0);
}

// ---- the service comes back ---------------------------------------------------------------

// https://github.com/LMCache/LMCache/issues/4642 https://github.com/LMCache/LMCache/pull/4687
// https://github.com/LMCache/LMCache/pull/3208
TEST(ServiceRestarted, IsNoticedAndTheSameHandlesWorkAgain) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker worker(2, kRows), second(1, kRows);
  worker.Lend(*session);
  second.Lend(*session);
  const uint64_t epoch = session->state().epoch;
  service.process().Signal(SIGKILL);
  ASSERT_TRUE(service.process().WaitExit().has_value());
  ASSERT_TRUE(WaitUntil([&] { return !session->alive(); }, 2000));

  const auto begin = std::chrono::steady_clock::now();
  const CompressOutcome meanwhile = session->Compress(worker.Request({worker.Of(0)}, kKept));
  EXPECT_EQ(meanwhile.outcome, Outcome::kUnavailable);
  EXPECT_LT(MillisecondsSince(begin), 100);  // at once
  EXPECT_EQ(session->GetServerInfo().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(session->Register({}).status().code(), absl::StatusCode::kUnavailable);

  ASSERT_TRUE(service.Start());
  EXPECT_TRUE(session->WaitAlive(1000)) << session->state().last_error;
  EXPECT_NE(session->state().epoch, epoch);
  EXPECT_EQ(session->state().attachments, 2u);
  const CompressOutcome outcome =
      session->Compress(worker.Request({worker.Of(0), worker.Of(1)}, kKept));
  EXPECT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  Sequence third = second.Of(0);
  third.sequence_id = 3;
  EXPECT_EQ(session->Compress(second.Request({third}, kKept)).outcome, Outcome::kApplied);
  worker.ExpectTokens(worker.Of(1), 1, StampedWorker::StreamingRows(kRows, kKept));
}

TEST(ServiceRestarted, WhatWasTakenBackMeanwhileStaysTakenBack) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker kept(1, kRows), gone(1, kRows);
  kept.Lend(*session);
  gone.Lend(*session);
  service.process().Signal(SIGKILL);
  ASSERT_TRUE(service.process().WaitExit().has_value());
  ASSERT_TRUE(WaitUntil([&] { return !session->alive(); }, 2000));
  EXPECT_TRUE(session->Unregister(gone.regions(), {}).ok());
  ASSERT_TRUE(service.Start());
  ASSERT_TRUE(session->WaitAlive(2000));
  const auto listed = session->ListRegions();
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->regions.size(), 1u);
  EXPECT_EQ(listed->regions[0].region, kept.regions()[0]);
}

// https://github.com/grpc/grpc/issues/14014 https://github.com/grpc/grpc/issues/11411
// https://github.com/grpc/grpc/issues/35076
TEST(ServiceRestarted, TwoClientsOfOneProcessComeBackAfterThreeSeconds) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  const auto first = ConnectTo(service), second = ConnectTo(service);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  StampedWorker worker(1, kRows), other(1, kRows);
  worker.Lend(*first);
  other.Lend(*second);
  service.process().Signal(SIGKILL);
  ASSERT_TRUE(service.process().WaitExit().has_value());
  // Until a client has seen the stream end, a call may still be sent: it ends unchanged.
  ASSERT_TRUE(WaitUntil([&] { return !first->alive() && !second->alive(); }));
  const auto down = std::chrono::steady_clock::now();
  while (MillisecondsSince(down) < 3000) {  // both go on calling
    EXPECT_EQ(first->Compress(worker.Request({worker.Of(0)}, kKept)).outcome,
              Outcome::kUnavailable);
    EXPECT_EQ(second->Compress(other.Request({other.Of(0)}, kKept)).outcome, Outcome::kUnavailable);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(service.Start());
  EXPECT_TRUE(first->WaitAlive(1000)) << first->state().last_error;
  EXPECT_TRUE(second->WaitAlive(1000)) << second->state().last_error;
  EXPECT_EQ(first->Compress(worker.Request({worker.Of(0)}, kKept)).outcome, Outcome::kApplied);
  EXPECT_EQ(second->Compress(other.Request({other.Of(0)}, kKept)).outcome, Outcome::kApplied);
}

TEST(ServiceDrained, EndsTheSessionWithoutHarm) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker worker(1, kRows);
  worker.Lend(*session);
  service.process().Signal(SIGTERM);
  EXPECT_EQ(service.process().WaitExit(), 0);
  const CompressOutcome outcome = session->Compress(worker.Request({worker.Of(0)}, kKept));
  EXPECT_NE(outcome.outcome, Outcome::kApplied);
  worker.ExpectUntouched(0);
  ASSERT_TRUE(service.Start());
  ASSERT_TRUE(session->WaitAlive(2000));
  EXPECT_EQ(session->Compress(worker.Request({worker.Of(0)}, kKept)).outcome, Outcome::kApplied);
}

// ---- the worker dies ------------------------------------------------------------------------

class WorkerDies : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& service_flags) {
    ASSERT_TRUE(service_.Start(service_flags));
    worker_ = ChildProcess::Start(KVTRIAGE_TEST_BIN_DIR "/lending_worker",
                                  {.arguments = {service_.endpoint()}});
    ASSERT_NE(worker_, nullptr);
  }
  bool WorkerSaid(const std::string& word) {
    return WaitUntil([&] { return worker_->Output().find(word) != std::string::npos; });
  }
  bool MappedBytesGone(int64_t limit_ms) {
    return WaitUntil([&] { return service_.Metric("kvtriage_mapped_bytes") == 0; }, limit_ms);
  }
  // The service still serves others.
  void ExpectServiceWorks() {
    EXPECT_TRUE(service_.process().running());
    const auto session = ConnectTo(service_);
    ASSERT_NE(session, nullptr);
    StampedWorker worker(1, kRows);
    worker.Lend(*session);
    EXPECT_EQ(session->Compress(worker.Request({worker.Of(0)}, kKept)).outcome, Outcome::kApplied);
  }

  ServiceProcess service_{kServiceProgram};
  std::unique_ptr<ChildProcess> worker_;
};

TEST_F(WorkerDies, ItsMemoryIsLetGoWithinASecond) {
  Start({});
  ASSERT_TRUE(WorkerSaid("applied")) << worker_->ErrorOutput();
  ASSERT_GT(service_.Metric("kvtriage_mapped_bytes").value_or(0), 0);
  worker_->Signal(SIGKILL);
  EXPECT_TRUE(MappedBytesGone(1000));
  EXPECT_EQ(service_.Metric("kvtriage_sessions"), 0);
  ExpectServiceWorks();
}

TEST_F(WorkerDies, WhileItsJobMovesRows) {
  constexpr int64_t kJobMs = 1500;
  Start({"--fault=move.mid_rows:delay=" + std::to_string(kJobMs)});
  ASSERT_TRUE(WorkerSaid("moving")) << worker_->ErrorOutput();
  const auto begin = std::chrono::steady_clock::now();
  worker_->Signal(SIGKILL);
  ASSERT_GT(service_.Metric("kvtriage_mapped_bytes").value_or(0),
            0);  // a move is never stopped half way
  EXPECT_TRUE(MappedBytesGone(kJobMs + 1000));
  EXPECT_LT(MillisecondsSince(begin), kJobMs + 1000);
  ExpectServiceWorks();
}

TEST_F(WorkerDies, AStoppedOneLosesItsSession) {
  Start({"--lease.keepalive_ms=200", "--lease.keepalive_timeout_ms=200"});
  ASSERT_TRUE(WorkerSaid("applied")) << worker_->ErrorOutput();
  worker_->Signal(SIGSTOP);
  EXPECT_TRUE(MappedBytesGone(5000));
  worker_->Signal(SIGCONT);
  // It wakes up, finds its stream gone, and lends again.
  EXPECT_TRUE(
      WaitUntil([&] { return service_.Metric("kvtriage_mapped_bytes").value_or(0) > 0; }, 5000));
}

}  // namespace
}  // namespace kvtriage::client
