// Random histories: several workers at once, each checked against its model after every answer.
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/engine/history_client.h"

namespace kvtriage {
namespace {

constexpr int kClients = 4, kSteps = 500;

class History : public testing::TestWithParam<uint64_t> {};

TEST_P(History, EveryAnswerIsRight) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  // Every other history runs on the real kernels.
  EngineWorld world({}, nullptr, seed % 2 == 0 ? MakeCpuBackend(1) : nullptr);
  std::vector<std::unique_ptr<HistoryClient>> clients;
  for (uint64_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<HistoryClient>(world, seed * kClients + i + 1));
  }
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&client, seed] {
      SCOPED_TRACE("seed " + std::to_string(seed));
      for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) client->Step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(world.engine().WaitIdle(10'000));
  EXPECT_EQ(world.engine().RunningMs(), 0u);
  for (const auto& client : clients) client->Check();
  clients.clear();
}

INSTANTIATE_TEST_SUITE_P(Seeds, History, testing::Range<uint64_t>(0, 20));

}  // namespace
}  // namespace kvtriage
