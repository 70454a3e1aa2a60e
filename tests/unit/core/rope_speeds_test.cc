// Speeds against numbers worked out by the float64 NumPy reference, and what each scaling promises
// at its ends.
#include "kernels/core/rope_speeds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <utility>

namespace kvtriage {
namespace {

using Numbers = std::vector<std::pair<uint32_t, double>>;

void ExpectSpeeds(const RopeTheta& theta, uint32_t rotary_dim, const Numbers& numbers) {
  const std::vector<double> speeds = RopeSpeeds(theta, rotary_dim);
  ASSERT_EQ(speeds.size(), rotary_dim / 2);
  for (const auto& [j, f] : numbers) EXPECT_NEAR(speeds[j], f, 4e-15 * f) << "pair " << j;
}

TEST(RopeSpeedsTest, Plain) {
  ExpectSpeeds({.theta = 1e4}, 8, {{0, 1.0}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  EXPECT_TRUE(RopeSpeeds({.theta = 1e4}, 0).empty());
}

TEST(RopeSpeedsTest, Linear) {
  ExpectSpeeds({.theta = 1e4, .scaling = RopeScaling::kLinear, .factor = 4}, 8,
               {{0, 0.25}, {1, 0.025}, {2, 0.0025}, {3, 0.00025}});
}

TEST(RopeSpeedsTest, Llama3) {
  const RopeTheta theta{.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 8};
  ExpectSpeeds(theta, 128,
               {{0, 1.0},
                {1, 0.8146172338565447},
                {28, 0.003211445994752591},
                {29, 0.002166570763503359},
                {30, 0.0013718935677611381},
                {34, 0.0001785078127679964},
                {35, 9.556212353964682e-05},
                {63, 3.068925988914511e-07}});
  // Short wavelengths keep their speed, long ones are slowed down by the whole factor.
  const auto scaled = RopeSpeeds(theta, 128), plain = RopeSpeeds({.theta = 5e5}, 128);
  for (uint32_t j = 0; j < 64; ++j) {
    const double wavelength = 2 * std::numbers::pi / plain[j];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[j], plain[j]);
    } else if (wavelength > 8192.0) {
      EXPECT_EQ(scaled[j], plain[j] / 8);
    }
    EXPECT_TRUE(j == 0 || scaled[j] < scaled[j - 1]);
  }
}

TEST(RopeSpeedsTest, Yarn) {
  RopeTheta theta{
      .theta = 1e4, .scaling = RopeScaling::kYarn, .factor = 4, .original_length = 4096};
  ExpectSpeeds(theta, 128,
               {{0, 1.0},
                {20, 0.056234132519034905},
                {28, 0.013679072384914791},
                {34, 0.00447052317102041},
                {40, 0.0013378867023789297},
                {45, 0.0004294025889973582},
                {63, 2.8869549617236455e-05}});
  theta = {.theta = 1e6,
           .scaling = RopeScaling::kYarn,
           .factor = 32,
           .beta_fast = 16,
           .beta_slow = 2,
           .original_length = 8192};
  ExpectSpeeds(theta, 64,
               {{8, 0.03162277660168379},
                {10, 0.013335214321633239},
                {12, 0.003807519389309656},
                {16, 3.125e-05},
                {31, 4.812270393935912e-08}});
}

}  // namespace
}  // namespace kvtriage
