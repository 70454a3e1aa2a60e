#include "service/app/watchdog.h"

#include <atomic>

#include "gtest/gtest.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

TEST(Watchdog, TellsOnceWhatIsStuck) {
  Doorkeeper doorkeeper;
  std::atomic<uint64_t> busy{0};
  std::atomic<int> stuck{0}, looks{0};
  Watchdog watchdog(doorkeeper,
                    {{"idle",
                      [&] {
                        ++looks;
                        return uint64_t{0};
                      },
                      10},
                     {"busy", [&] { return busy.load(); }, 10}},
                    [&](const Watchdog::Watched& watched) {
                      EXPECT_EQ(watched.name, "busy");
                      ++stuck;
                    });
  EXPECT_TRUE(WaitUntil([&] { return looks >= 3; }));
  EXPECT_EQ(stuck, 0);
  busy = 11;
  EXPECT_TRUE(WaitUntil([&] { return stuck == 1; }));
  const int looked = looks;
  EXPECT_FALSE(WaitUntil([&] { return looks > looked || stuck > 1; }, 600)) << "once is enough";
}

TEST(Watchdog, LooksNoMoreOnceGone) {
  Doorkeeper doorkeeper;
  std::atomic<int> looks{0};
  {
    const Watchdog watchdog(doorkeeper,
                            {{"x",
                              [&] {
                                ++looks;
                                return uint64_t{0};
                              },
                              10}},
                            [](const Watchdog::Watched&) {});
  }
  const int looked = looks;
  EXPECT_FALSE(WaitUntil([&] { return looks > looked; }, 600));
}

}  // namespace
}  // namespace kvtriage
