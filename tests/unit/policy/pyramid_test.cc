#include "service/policy/pyramid.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvtriage {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kBeta = 20;

// One layer divides by layers - 1 nowhere. https://github.com/NVIDIA/kvpress/pull/266
TEST(PyramidSlots, HandCheckedNumbers) {
  EXPECT_THAT(PyramidSlots(4, 60 - 16, 260 - 16, kBeta, 0), ElementsAre(86, 58, 30, 2));
  EXPECT_THAT(PyramidSlots(4, 256 - 64, 1024 - 64, kBeta, 0), ElementsAre(374, 253, 131, 10));
  EXPECT_THAT(PyramidSlots(4, 184, 240, kBeta, 0), ElementsAre(240, 203, 165, 128));
  EXPECT_THAT(PyramidSlots(1, 77, 240, kBeta, 0), ElementsAre(77));
  const std::vector<uint32_t> slots = PyramidSlots(32, 1638 - 64, 8192 - 64, kBeta, 0);
  EXPECT_EQ(slots[0] + 64, 3133u);
  EXPECT_EQ(slots[15] + 64, 1686u);
  EXPECT_EQ(slots[31] + 64, 143u);
}

TEST(PyramidSlots, TotalsAreExactAndLayersNeverRise) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t layers = 1 + random() % 64, candidates = 1 + random() % 3000;
    const uint32_t slots = 1 + random() % candidates;
    const uint32_t beta = 1u << random() % 21;
    const std::vector<uint32_t> shares = PyramidSlots(layers, slots, candidates, beta, 1);
    ASSERT_EQ(shares.size(), layers);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), uint64_t{0}), uint64_t{layers} * slots);
    EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 1u);
    EXPECT_LE(shares.front(), candidates);
    for (size_t l = 1; l < shares.size(); ++l) EXPECT_LE(shares[l], shares[l - 1] + 1) << l;
  }
}

TEST(PyramidSlots, LargestNumbersDoNotWrap) {
  const uint32_t layers = 4096, slots = 1u << 20, candidates = 1u << 24;
  const std::vector<uint32_t> shares = PyramidSlots(layers, slots, candidates, 1u << 20, 0);
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), uint64_t{0}), uint64_t{layers} * slots);
  EXPECT_EQ(shares.front(), 2 * slots - 1);  // 2t - t/beta
  EXPECT_EQ(shares.back(), 1u);
}

TEST(PyramidSlots, BetaOneIsUniform) {
  EXPECT_THAT(PyramidSlots(3, 10, 100, 1, 0), ElementsAre(10, 10, 10));
}

}  // namespace
}  // namespace kvtriage
