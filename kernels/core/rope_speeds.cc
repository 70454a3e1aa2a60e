#include "kernels/core/rope_speeds.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvtriage {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double Llama3(const RopeTheta& rope, double f) {
  const double wavelength = kTwoPi / f, original = rope.original_length;
  if (wavelength < original / rope.high) return f;
  if (wavelength > original / rope.low) return f / rope.factor;
  const double s = (original / wavelength - rope.low) / (rope.high - rope.low);
  return (1 - s) * f / rope.factor + s * f;
}

// Pairs below `lo` keep their speed, pairs above `hi` are interpolated.
struct YarnRamp {
  double lo, hi;

  YarnRamp(const RopeTheta& rope, uint32_t rotary_dim) {
    const double dim = rotary_dim, original = rope.original_length;
    const auto pair_that_turns = [&](double times) {
      return dim * std::log(original / (kTwoPi * times)) / (2 * std::log(rope.theta));
    };
    lo = std::max(std::floor(pair_that_turns(rope.beta_fast)), 0.0);
    hi = std::min(std::ceil(pair_that_turns(rope.beta_slow)), dim - 1);
  }
  double At(double j) const { return std::clamp((j - lo) / std::max(hi - lo, 1e-3), 0.0, 1.0); }
};

}  // namespace

std::vector<double> RopeSpeeds(const RopeTheta& rope, uint32_t rotary_dim) {
  std::vector<double> speeds(rotary_dim / 2);
  const YarnRamp yarn(rope, rotary_dim);
  for (uint32_t j = 0; j < speeds.size(); ++j) {
    const double f = std::pow(rope.theta, -2.0 * j / rotary_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        speeds[j] = f;
        break;
      case RopeScaling::kLinear:
        speeds[j] = f / rope.factor;
        break;
      case RopeScaling::kLlama3:
        speeds[j] = Llama3(rope, f);
        break;
      case RopeScaling::kYarn:
        speeds[j] = f / rope.factor * yarn.At(j) + f * (1 - yarn.At(j));
        break;
    }
  }
  return speeds;
}

}  // namespace kvtriage
