#include "service/memory/mapper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/lent_memfd.h"
#include "tests/support/process_tables.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

TEST(Mapper, RunsInOrderOnItsOwnThread) {
  Mapper mapper;
  std::vector<int> order;
  std::thread::id thread;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) {
    mapper.Post([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
      if (i == 99) done.set_value();
    });
  }
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(Mapper, DestructorRunsWhatIsQueuedAndDelayed) {
  std::atomic<int> ran{0};
  {
    Mapper mapper;
    for (int i = 0; i < 10; ++i) mapper.Post([&] { ++ran; });
    mapper.PostAfter(3'600'000, [&] { ++ran; });
  }
  EXPECT_EQ(ran, 11);
}

TEST(Mapper, DelayedTasksWaitAndDoNotHoldUpOthers) {
  Mapper mapper;
  const auto start = std::chrono::steady_clock::now();
  std::promise<void> now, later;
  mapper.PostAfter(50, [&] { later.set_value(); });
  mapper.Post([&] { now.set_value(); });
  now.get_future().wait();
  later.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

TEST(Mapper, BusyTimeIsThatOfTheRunningTask) {
  Mapper mapper;
  EXPECT_EQ(mapper.BusyMs(), 0u);
  std::promise<void> release;
  mapper.Post([&] { release.get_future().wait(); });
  EXPECT_TRUE(WaitUntil([&] { return mapper.BusyMs() >= 5; }));
  release.set_value();
  EXPECT_TRUE(WaitUntil([&] { return mapper.BusyMs() == 0; }));
}

TEST(Mapper, ClosesDescriptorsOnItsThread) {
  const size_t before = CountDescriptors();
  {
    Mapper mapper;
    std::promise<void> release;
    mapper.Post([&] { release.get_future().wait(); });
    std::vector<UniqueFd> fds;
    fds.push_back(MakeLentMemfd(4096));
    fds.push_back(MakeLentMemfd(4096));
    mapper.Close(std::move(fds));
    EXPECT_EQ(CountDescriptors(), before + 2) << "the caller closed them";
    release.set_value();
    EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == before; }));
  }
}

TEST(Mapper, WorkAsideHoldsUpNobodyAndIsNotAHang) {
  Mapper mapper;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> ended{0};
  for (int i = 0; i < 40; ++i) {  // more than run at once
    mapper.PostAside([&, released] {
      released.wait();
      ++ended;
    });
  }
  for (int i = 0; i < 20; ++i) {
    std::promise<void> ran;
    mapper.Post([&] { ran.set_value(); });
    ran.get_future().wait();
  }
  EXPECT_TRUE(WaitUntil([&] { return mapper.BusyMs() == 0; }));
  EXPECT_EQ(ended, 0);
  release.set_value();
  EXPECT_TRUE(WaitUntil([&] { return ended == 40; }));
}

TEST(Mapper, DestructorWaitsForWorkAsideAndWhatItPosts) {
  std::atomic<int> ran{0};
  std::promise<void> release;
  std::thread releaser;
  {
    Mapper mapper;
    mapper.PostAside([&] {
      release.get_future().wait();
      mapper.Post([&] {
        ++ran;
        mapper.PostAside([&] { ++ran; });
      });
    });
    releaser = std::thread([&] { release.set_value(); });
  }
  EXPECT_EQ(ran, 2);
  releaser.join();
}

}  // namespace
}  // namespace kvtriage
