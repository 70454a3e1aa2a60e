#include "kernels/core/checked_math.h"

#include <array>

#include "gtest/gtest.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMax = ~uint64_t{0};
constexpr std::array<uint64_t, 9> kBoundaries = {
    0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, kMax / 2, kMax - 1, kMax};

TEST(SizeArithmeticWraps, AgreesWith128Bits) {
  for (const uint64_t a : kBoundaries) {
    for (const uint64_t b : kBoundaries) {
      const auto product = static_cast<unsigned __int128>(a) * b;
      const auto sum = static_cast<unsigned __int128>(a) + b;
      EXPECT_EQ(CheckedMul(a, b).has_value(), product <= kMax);
      EXPECT_EQ(CheckedAdd(a, b).has_value(), sum <= kMax);
      for (const uint64_t size : kBoundaries)
        EXPECT_EQ(RangeFits(a, b, size), sum <= size) << a << " " << b << " " << size;
    }
  }
}

TEST(SizeArithmeticWraps, SumThatWrapsToASmallNumberDoesNotFit) {
  EXPECT_FALSE(RangeFits(0xFFFFFFFFFFFFFFC0u, 0x80, 4096));
  EXPECT_FALSE(RangeFits(4096, 1, 4096));
  EXPECT_TRUE(RangeFits(4096, 0, 4096));
}

}  // namespace
}  // namespace kvtriage
