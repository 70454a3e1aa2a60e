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

TEST(Dtype, F8CodesMeanWhatOcpSays) {
  EXPECT_EQ(E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(E4M3ToFloat(0x38), 1.0f);
  EXPECT_EQ(E4M3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(E4M3ToFloat(0xB8), -1.0f);
  EXPECT_TRUE(std::isnan(E4M3ToFloat(0x7F)) && std::isnan(E4M3ToFloat(0xFF)));
  EXPECT_EQ(E5M2ToFloat(0x01), 0x1p-16f);
  EXPECT_EQ(E5M2ToFloat(0x3C), 1.0f);
  EXPECT_EQ(E5M2ToFloat(0x7B), 57344.0f);
  EXPECT_TRUE(std::isinf(E5M2ToFloat(0x7C)) && std::isnan(E5M2ToFloat(0x7D)));
  EXPECT_EQ(ElementBytes(DType::kF8E4M3), 1u);
}

TEST(Dtype, EveryF8CodeSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    const float e4m3 = E4M3ToFloat(code), e5m2 = E5M2ToFloat(code);
    if (std::isnan(e4m3)) {
      EXPECT_TRUE(std::isnan(E4M3ToFloat(FloatToE4M3(e4m3))));
    } else {
      EXPECT_EQ(FloatToE4M3(e4m3), code);
    }
    if (std::isnan(e5m2)) {
      EXPECT_TRUE(std::isnan(E5M2ToFloat(FloatToE5M2(e5m2))));
    } else if (!std::isinf(e5m2)) {
      EXPECT_EQ(FloatToE5M2(e5m2), code);
    }
  }
}

// Between two neighbours the nearer one is taken, half way the one with an even code.
TEST(Dtype, F8RoundsToNearestEvenAndSaturates) {
  for (uint8_t code = 0; code < 0x7B; ++code) {
    const float low = E4M3ToFloat(code), high = E4M3ToFloat(static_cast<uint8_t>(code + 1));
    const float half = low + (high - low) / 2;
    EXPECT_EQ(FloatToE4M3(half), code + code % 2) << int(code);
    EXPECT_EQ(FloatToE4M3(std::nextafter(half, 0.0f)), code) << int(code);
    EXPECT_EQ(FloatToE4M3(std::nextafter(half, 1e9f)), code + 1) << int(code);
    const float low2 = E5M2ToFloat(code), high2 = E5M2ToFloat(static_cast<uint8_t>(code + 1));
    const float half2 = low2 + (high2 - low2) / 2;
    EXPECT_EQ(FloatToE5M2(half2), code + code % 2) << int(code);
    EXPECT_EQ(FloatToE5M2(std::nextafter(half2, 0.0f)), code) << int(code);
    EXPECT_EQ(FloatToE5M2(std::nextafter(half2, 1e9f)), code + 1) << int(code);
  }
  for (const float large : {449.0f, 500.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(FloatToE4M3(large), 0x7E);
    EXPECT_EQ(FloatToE4M3(-large), 0xFE);
  }
  EXPECT_EQ(FloatToE5M2(70000.0f), 0x7B);
  EXPECT_EQ(FloatToE5M2(-INFINITY), 0xFB);
}

TEST(SplitMix64, KnownStream) {
  EXPECT_EQ(SplitMix64(42, 0), 0xbdd732262feb6e95u);
  EXPECT_EQ(SplitMix64(42, 1), 0x28efe333b266f103u);
  EXPECT_EQ(SplitMix64(42, 2), 0x47526757130f9f52u);
}

}  // namespace
}  // namespace kvtriage
