// Speeds of rotary position embeddings: the row at position p is turned by p * f_j in channel pair
// j. Everything is float64: at position 131,072 an error of 2^-24 in a speed is 8e-3 rad.
#ifndef KVTRIAGE_KERNELS_CORE_ROPE_SPEEDS_H_
#define KVTRIAGE_KERNELS_CORE_ROPE_SPEEDS_H_

#include <cstdint>
#include <vector>

namespace kvtriage {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

// f_j = theta^(-2j/R) for the R/2 pairs of R rotated channels, then scaled:
//   kLinear  f / factor (position interpolation)
//   kLlama3  lam = 2 pi / f: f below original/high, f / factor above original/low, between them
//            (1-s) f/factor + s f with s = (original/lam - low) / (high - low)   (Llama 3.1)
//   kYarn    dim(x) = R ln(original / (2 pi x)) / (2 ln theta), lo = max(floor(dim(beta_fast)), 0),
//            hi = min(ceil(dim(beta_slow)), R-1), ramp = clamp((j-lo) / max(hi-lo, 0.001), 0, 1):
//            f/factor * ramp + f * (1-ramp)                        (YaRN, arXiv 2309.00071)
struct RopeTheta {
  double theta = 0;  // > 1
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                     // > 0
  double low = 1, high = 4;              // kLlama3, 0 < low < high
  double beta_fast = 32, beta_slow = 1;  // kYarn, > 0
  uint32_t original_length = 8192;       // kLlama3 and kYarn, > 0
};

// R/2 speeds; `rotary_dim` is even.
std::vector<double> RopeSpeeds(const RopeTheta& rope, uint32_t rotary_dim);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_ROPE_SPEEDS_H_
