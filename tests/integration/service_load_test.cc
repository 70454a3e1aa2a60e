// More than the service wants: bounded queues, hints, a fixed number of threads, caps.
#include <atomic>
#include <fstream>
#include <thread>

#include "gtest/gtest.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

std::unique_ptr<RawWorker> Lender(const ServiceProcess& service) {
  auto worker = std::make_unique<RawWorker>(service.endpoint());
  EXPECT_TRUE(worker->Attach());
  EXPECT_EQ(worker->Bind(), "ok");
  EXPECT_TRUE(worker->Lend().ok());
  return worker;
}

// https://github.com/grpc/grpc/issues/32680
// https://github.com/grpc/grpc/issues/36360
// https://github.com/grpc/grpc/issues/12147
TEST(ServiceLoad, ExcessGetsARetryHintAndHealthStillAnswers) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start({"--lane.queue=16", "--lane.cpu_threads=1"}));
  std::vector<std::unique_ptr<RawWorker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(Lender(service));
  const double threads = *service.Metric("process_threads");
  const auto health = Connect(service.endpoint());

  std::atomic<int> ok{0}, shed{0}, wrong{0};
  std::vector<std::jthread> callers;
  for (uint64_t i = 0; i < 64; ++i) {
    callers.emplace_back([&, i] {
      RawWorker& worker = *workers[i % workers.size()];
      v1::CompressResponse response;
      const grpc::Status status =
          worker.Compress(worker.AttentionRequest(i + 1, 64, 16), &response);
      const std::string reason = ReasonOf(status);
      if (reason == "ok") {
        ++ok;
      } else if ((reason == "session_busy" || reason == "queue_full") &&
                 DetailOf(status).retry_after_ms() > 0) {
        ++shed;
      } else {
        ++wrong;
      }
    });
  }
  EXPECT_EQ(HealthOf(health, ""), "SERVING");
  for (std::jthread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ok + shed, 64);
  EXPECT_GE(ok, 1);
  EXPECT_LE(*service.Metric("process_threads"), threads + 8)
      << "gRPC may add a few, not one per call";
}

TEST(ServiceLoad, JobsOverTheLimitOfASessionAreRefusedWithAHint) {
  ServiceProcess service(kProgram);
  const std::string go = service.directory().File("go");
  ASSERT_TRUE(service.Start({"--session.in_flight=1", "--fault=plan.after_pins:until=" + go}));
  const auto worker = Lender(service);
  grpc::Status first;
  std::jthread caller([&] {
    v1::CompressResponse response;
    first = worker->Compress(worker->RecencyRequest(1, 40, 10), &response);
  });
  EXPECT_TRUE(WaitUntil([&] { return worker->RegionIsPinned(); }));
  v1::CompressResponse response;
  const grpc::Status status = worker->Compress(worker->RecencyRequest(2, 40, 10), &response);
  EXPECT_EQ(ReasonOf(status), "session_busy");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GT(DetailOf(status).retry_after_ms(), 0u);
  EXPECT_EQ(DetailOf(status).cache_state(), v1::CACHE_STATE_UNHARMED);
  std::ofstream(go).close();
  caller.join();
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(service.Metric("kvtriage_rejections_total", "session_busy"), 1);
}

TEST(ServiceLoad, ConnectionsAreCapped) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start({"--rpc.max_connections=2"}));
  auto first = Connect(service.endpoint());
  const auto second = Connect(service.endpoint());
  EXPECT_EQ(HealthOf(first, ""), "SERVING");
  EXPECT_EQ(HealthOf(second, ""), "SERVING");
  EXPECT_EQ(HealthOf(Connect(service.endpoint()), ""),
            std::to_string(grpc::StatusCode::UNAVAILABLE));
  EXPECT_TRUE(
      WaitUntil([&] { return service.Log().find("connection_limit") != std::string::npos; }));
  first.reset();
  // New channels: one that failed is looked after by gRPC's client every five seconds only.
  EXPECT_TRUE(WaitUntil([&] { return HealthOf(Connect(service.endpoint()), "") == "SERVING"; }));
}

TEST(ServiceLoad, SessionsAreCapped) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start({"--session.max=2", "--session.max_bound=1"}));
  RawWorker first(service.endpoint()), second(service.endpoint()), third(service.endpoint());
  ASSERT_TRUE(first.Attach());
  ASSERT_TRUE(second.Attach());
  EXPECT_FALSE(third.Attach());
  const grpc::Status status = third.FinishStream();
  EXPECT_EQ(ReasonOf(status), "session_limit");
  EXPECT_GT(DetailOf(status).retry_after_ms(), 0u);
  EXPECT_EQ(first.Bind(), "ok");
  EXPECT_EQ(second.Bind(), "session_limit");
}

}  // namespace
}  // namespace kvtriage
