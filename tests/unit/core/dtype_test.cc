#include "kernels/core/dtype.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

TEST(Dtype, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = F16ToFloat(half), bf16 = BF16ToFloat(half);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(f16))));
    } else {
      EXPECT_EQ(FloatToF16(f16), half);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(BF16ToFloat(FloatToBF16(bf16))));
    } else {
      EXPECT_EQ(FloatToBF16(bf16), half);
    }
  }
}

TEST(Dtype, RoundsToNearestEven) {
  EXPECT_EQ(F16ToFloat(FloatToF16(1.0f + 0x1p-11f)), 1.0f);                // half way: even stays
  EXPECT_EQ(F16ToFloat(FloatToF16(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);  // half way: odd goes up
  EXPECT_EQ(F16ToFloat(FloatToF16(65504.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(F16ToFloat(FloatToF16(65520.0f))));
  EXPECT_EQ(F16ToFloat(FloatToF16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(F16ToFloat(FloatToF16(0x1p-26f)), 0.0f);
  EXPECT_EQ(BF16ToFloat(FloatToBF16(1.0f + 0x1p-8f)), 1.0f);
}

TEST(SplitMix64, KnownStream) {
  EXPECT_EQ(SplitMix64(42, 0), 0xbdd732262feb6e95u);
  EXPECT_EQ(SplitMix64(42, 1), 0x28efe333b266f103u);
  EXPECT_EQ(SplitMix64(42, 2), 0x47526757130f9f52u);
}

}  // namespace
}  // namespace kvtriage
