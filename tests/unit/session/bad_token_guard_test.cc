#include "service/session/bad_token_guard.h"

#include <gtest/gtest.h>

#include "service/session/attach_rate.h"

namespace kvtriage {
namespace {

using std::chrono::milliseconds;
using Time = BadTokenGuard::Time;

Time At(int64_t ms) { return Time(std::chrono::hours(1)) + milliseconds(ms); }

TEST(BadTokenGuard, BlocksTheTwentiethWithinTheWindow) {
  BadTokenGuard guard(20, milliseconds(10'000));
  for (int i = 0; i < 19; ++i) guard.Count(7, At(i));
  EXPECT_FALSE(guard.Blocks(7, At(100)));
  guard.Count(7, At(100));
  EXPECT_TRUE(guard.Blocks(7, At(100)));
  EXPECT_FALSE(guard.Blocks(8, At(100))) << "another uid";
  EXPECT_TRUE(guard.Blocks(7, At(10'099)));
  EXPECT_FALSE(guard.Blocks(7, At(10'100)));
}

TEST(BadTokenGuard, SlowGuessesAreForgotten) {
  BadTokenGuard guard(20, milliseconds(10'000));
  for (int i = 0; i < 200; ++i) {
    guard.Count(7, At(i * 530));  // 19 of them in any 10 s
    ASSERT_FALSE(guard.Blocks(7, At(i * 530))) << i;
  }
}

TEST(BadTokenGuard, AfterABlockTheCountStartsAnew) {
  BadTokenGuard guard(2, milliseconds(100));
  guard.Count(7, At(0));
  guard.Count(7, At(0));
  EXPECT_TRUE(guard.Blocks(7, At(99)));
  guard.Count(7, At(150));
  EXPECT_FALSE(guard.Blocks(7, At(150)));
  guard.Count(7, At(151));
  EXPECT_TRUE(guard.Blocks(7, At(151)));
}

TEST(AttachRate, ABurstOfOneSecondThenTheSteadyRate) {
  AttachRate rate(100);
  int64_t ms = 0;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rate.Take(At(ms)));
  EXPECT_FALSE(rate.Take(At(ms)));
  EXPECT_FALSE(rate.Take(At(ms + 9)));
  EXPECT_TRUE(rate.Take(At(ms + 10)));
  EXPECT_FALSE(rate.Take(At(ms + 11)));
  int taken = 0;
  for (ms = 5000; ms < 15'000; ++ms) taken += rate.Take(At(ms));
  EXPECT_NEAR(taken, 100 + 1000, 2);
}

}  // namespace
}  // namespace kvtriage
