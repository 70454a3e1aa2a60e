#include "service/session/doorkeeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "service/memory/unique_fd.h"
#include "tests/support/process_tables.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  void Put() const { ASSERT_EQ(::write(write.get(), "x", 1), 1); }
  bool Take() const {
    char byte;
    return ::read(read.get(), &byte, 1) == 1;
  }
  UniqueFd read, write;
};

TEST(Doorkeeper, CallsWhenReadyAndNotAfterUnwatch) {
  Doorkeeper doorkeeper;
  const Pipe pipe;
  std::atomic<int> calls{0};
  ASSERT_TRUE(doorkeeper.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    pipe.Take();
    ++calls;
  }));
  pipe.Put();
  EXPECT_TRUE(WaitUntil([&] { return calls == 1; }));
  doorkeeper.Unwatch(pipe.read.get());
  pipe.Put();
  doorkeeper.RunAndWait([] {});
  doorkeeper.RunAndWait([] {});
  EXPECT_EQ(calls, 1);
  doorkeeper.Unwatch(pipe.read.get());  // harmless
}

TEST(Doorkeeper, ReadinessIsReportedUntilItIsTaken) {
  Doorkeeper doorkeeper;
  const Pipe pipe;
  std::atomic<int> calls{0};
  ASSERT_TRUE(doorkeeper.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t) {
    if (++calls == 3) pipe.Take();
  }));
  pipe.Put();
  EXPECT_TRUE(WaitUntil([&] { return calls == 3; }));
  doorkeeper.RunAndWait([] {});
  EXPECT_EQ(calls, 3);
  doorkeeper.Unwatch(pipe.read.get());
}

TEST(Doorkeeper, ACallbackMayUnwatchAndCloseItsOwnDescriptor) {
  Doorkeeper doorkeeper;
  Pipe pipe;
  std::promise<void> done;
  ASSERT_TRUE(doorkeeper.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t) {
    doorkeeper.Unwatch(pipe.read.get());
    pipe.read.reset();
    done.set_value();
  }));
  pipe.Put();
  done.get_future().wait();
}

TEST(Doorkeeper, UnwatchWaitsForARunningCallback) {
  Doorkeeper doorkeeper;
  const Pipe pipe;
  std::promise<void> entered;
  std::promise<void> release;
  std::atomic<bool> left{false};
  ASSERT_TRUE(doorkeeper.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t) {
    pipe.Take();
    entered.set_value();
    release.get_future().wait();
    left = true;
  }));
  pipe.Put();
  entered.get_future().wait();
  std::thread releaser([&] { release.set_value(); });
  doorkeeper.Unwatch(pipe.read.get());
  EXPECT_TRUE(left);
  releaser.join();
}

TEST(Doorkeeper, AnotherWatchOfTheSameNumberGetsNoOldEvent) {
  Doorkeeper doorkeeper;
  Pipe first, second;
  std::atomic<int> wrong{0};
  std::promise<void> done;
  // In one batch: the first callback replaces the second's watch by one of a descriptor that is not
  // ready.
  const auto replace = [&](const Pipe& own, Pipe& other) {
    own.Take();
    const int number = other.read.get();
    doorkeeper.Unwatch(number);
    other = Pipe();
    ASSERT_EQ(::dup3(first.write.get(), number, O_CLOEXEC), number);  // never readable
    ASSERT_TRUE(doorkeeper.Watch(number, EPOLLIN, [&](uint32_t) { ++wrong; }));
    doorkeeper.Post([&, number] {
      doorkeeper.Unwatch(number);
      ::close(number);
      done.set_value();
    });
  };
  std::atomic<bool> ran{false};
  doorkeeper.RunAndWait([&] {
    for (Pipe* own : {&first, &second}) {
      Pipe* other = own == &first ? &second : &first;
      ASSERT_TRUE(doorkeeper.Watch(own->read.get(), EPOLLIN, [&, own, other](uint32_t) {
        if (!ran.exchange(true)) replace(*own, *other);
      }));
      own->Put();
    }
  });
  done.get_future().wait();
  EXPECT_EQ(wrong, 0);
}

TEST(Doorkeeper, SaysWhenADescriptorCannotBeWatched) {
  Doorkeeper doorkeeper;
  const TempDir dir;
  const UniqueFd file(::open(dir.File("plain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_FALSE(doorkeeper.Watch(file.get(), EPOLLIN, [](uint32_t) {}));
  EXPECT_FALSE(doorkeeper.Watch(-1, EPOLLIN, [](uint32_t) {}));
}

TEST(Doorkeeper, TimersRunInTheOrderOfTheirTimes) {
  Doorkeeper doorkeeper;
  std::vector<int> order;
  std::promise<void> done;
  const auto start = std::chrono::steady_clock::now();
  doorkeeper.After(40, [&] {
    order.push_back(40);
    done.set_value();
  });
  doorkeeper.After(10, [&] { order.push_back(10); });
  doorkeeper.After(0, [&] { order.push_back(0); });
  const uint64_t cancelled = doorkeeper.After(20, [&] { order.push_back(20); });
  doorkeeper.Cancel(cancelled);
  done.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
  EXPECT_EQ(order, (std::vector<int>{0, 10, 40}));
  doorkeeper.Cancel(cancelled);
  doorkeeper.Cancel(123456);
}

TEST(Doorkeeper, TasksFromManyThreadsAllRunOnItsThread) {
  Doorkeeper doorkeeper;
  std::atomic<int> ran{0};
  std::thread::id id;
  doorkeeper.RunAndWait([&] { id = std::this_thread::get_id(); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 500; ++j) {
        doorkeeper.Post([&] {
          EXPECT_EQ(std::this_thread::get_id(), id);
          ++ran;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  doorkeeper.RunAndWait([] {});
  EXPECT_EQ(ran, 2000);
}

TEST(Doorkeeper, RunAndWaitFromItsOwnThreadRunsAtOnce) {
  Doorkeeper doorkeeper;
  bool inner = false;
  doorkeeper.RunAndWait([&] {
    doorkeeper.RunAndWait([&] { inner = true; });
    EXPECT_TRUE(inner);
  });
  EXPECT_TRUE(inner);
}

TEST(Doorkeeper, DestructionDropsWhatIsPending) {
  const size_t before = CountDescriptors();
  auto held = std::make_shared<int>(1);
  const Pipe pipe;
  {
    Doorkeeper doorkeeper;
    doorkeeper.After(3'600'000, [held] { FAIL(); });
    ASSERT_TRUE(doorkeeper.Watch(pipe.read.get(), EPOLLIN, [held](uint32_t) { FAIL(); }));
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(CountDescriptors(), before + 2);
}

}  // namespace
}  // namespace kvtriage
