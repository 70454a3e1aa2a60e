#include "kernels/cpu/thread_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace kvtriage {
namespace {

TEST(ThreadTeamTest, CountsTheCaller) {
  EXPECT_EQ(ThreadTeam(1).threads(), 1);
  EXPECT_EQ(ThreadTeam(5).threads(), 5);
  EXPECT_EQ(ThreadTeam(0).threads(), 1);
}

TEST(ThreadTeamTest, RunsEveryItemOnceAndPublishesWhatItWrote) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    for (size_t round = 0; round < 300; ++round) {
      const size_t items = round % 37;
      std::vector<int> plain(items, 0);  // not atomic: Run itself has to order the memory
      team.Run(items, [&](size_t item, int worker) {
        plain[item] += 1;
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
      });
      ASSERT_THAT(plain, testing::Each(1)) << threads << " threads, round " << round;
    }
  }
}

TEST(ThreadTeamTest, WorkersThatRunTogetherHaveDifferentNumbers) {
  ThreadTeam team(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  team.Run(400, [&](size_t, int worker) {
    if (inside[static_cast<size_t>(worker)].fetch_add(1) != 0) clashes.fetch_add(1);
    std::this_thread::yield();
    inside[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(clashes.load(), 0);
}

TEST(ThreadTeamTest, OneThreadTakesItemsInOrder) {
  ThreadTeam team(1);
  std::vector<size_t> order, expected(50);
  std::iota(expected.begin(), expected.end(), size_t{0});
  team.Run(50, [&](size_t item, int) { order.push_back(item); });
  EXPECT_EQ(order, expected);
}

TEST(ThreadTeamTest, WorkersReallyShareTheWork) {
  // Two items that each wait for the other can only end when two threads run them.
  ThreadTeam team(2);
  std::atomic<int> arrived{0};
  team.Run(2, [&](size_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

}  // namespace
}  // namespace kvtriage
