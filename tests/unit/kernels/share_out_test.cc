#include "kernels/core/share_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace kvtriage {
namespace {

using testing::ElementsAre;

std::vector<uint32_t> Share(std::vector<uint64_t> num, uint64_t den, uint64_t total, uint32_t least,
                            uint32_t most) {
  return ShareOut(num, den, total, least, most);
}

TEST(ShareOutTest, LargestRemainderTakesThePlacesLeft) {
  // 13107.2/65536 of 84 each, and the rest by 68, 77, 87, 104.
  const uint64_t a = 13108, den = 65536;
  std::vector<uint64_t> num;
  for (const uint64_t c : {68, 77, 87, 104}) num.push_back(a * 84 + (den - a) * c);
  EXPECT_THAT(Share(num, den, 4 * 84, 0, 1000), ElementsAre(71, 79, 86, 100));
}

TEST(ShareOutTest, EqualRemaindersGoToTheLowerIndex) {
  EXPECT_THAT(Share({1, 1, 1}, 3, 1, 0, 1), ElementsAre(1, 0, 0));
  EXPECT_THAT(Share({5, 5, 5, 5}, 2, 10, 0, 3), ElementsAre(3, 3, 2, 2));
}

TEST(ShareOutTest, NoneEndsBelowTheLeast) {
  EXPECT_THAT(Share({12, 0, 0, 0}, 1, 12, 1, 12), ElementsAre(9, 1, 1, 1));
  EXPECT_THAT(Share({6, 6, 0}, 1, 12, 1, 12), ElementsAre(5, 6, 1));
  EXPECT_THAT(Share({4, 0, 0, 0}, 1, 4, 1, 4), ElementsAre(1, 1, 1, 1));
}

TEST(ShareOutTest, EmptyAndZero) {
  EXPECT_TRUE(Share({}, 1, 0, 0, 0).empty());
  EXPECT_THAT(Share({0, 0}, 7, 0, 0, 0), ElementsAre(0, 0));
}

TEST(ShareOutTest, LargeNumeratorsDoNotWrap) {
  const uint64_t rows = uint64_t{1} << 31;  // more than int32 rows hold
  EXPECT_THAT(Share({rows * 65536, 0}, 65536, rows, 0, 0xFFFFFFFFu), ElementsAre(rows, 0));
}

TEST(ShareOutTest, TotalIsExactAndSharesStayWithinOneOfTheirQuota) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const size_t n = 1 + random() % 40;
    const uint64_t den = 1 + random() % 70000, most = 1 + random() % 5000;
    std::vector<uint64_t> num(n);
    for (uint64_t& x : num) x = random() % (den * most + 1);
    // Make the sum a whole number of dens.
    const uint64_t sum = std::accumulate(num.begin(), num.end(), uint64_t{0});
    uint64_t excess = sum % den;
    for (uint64_t& x : num) {
      const uint64_t take = std::min(x, excess);
      x -= take;
      excess -= take;
    }
    const uint64_t total = (sum - sum % den) / den;
    const auto shares = Share(num, den, total, 0, static_cast<uint32_t>(most));
    uint64_t given = 0;
    for (size_t i = 0; i < n; ++i) {
      given += shares[i];
      EXPECT_GE(shares[i], num[i] / den);
      EXPECT_LE(shares[i], num[i] / den + (num[i] % den != 0 ? 1 : 0));
    }
    EXPECT_EQ(given, total);
  }
}

}  // namespace
}  // namespace kvtriage
