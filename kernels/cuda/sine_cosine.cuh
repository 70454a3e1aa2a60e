// Sine and cosine of rotary angles, the same in every kernel.
#ifndef KVTRIAGE_KERNELS_CUDA_SINE_COSINE_CUH_
#define KVTRIAGE_KERNELS_CUDA_SINE_COSINE_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/simt.h"

namespace kvtriage {

// Sine and cosine of any angle to float64's precision, without the branches (and the stack) that
// the libraries take for huge angles: the nearest multiple of pi/2 goes in two parts, what is left
// lies within pi/4, where these many terms of the series are exact to float64.
SIMT_DEVICE void SineCosine(double angle, double* sine, double* cosine) {
  const double quarter = rint(angle * 0.63661977236758134308);  // 2 / pi
  double x = fma(-quarter, 1.5707963267948965580, angle);       // pi / 2, rounded
  x = fma(-quarter, 6.1232339957367658860e-17, x);              // and what the rounding left
  const double x2 = x * x;
  double s = 0, c = 0;
  SIMT_UNROLL
  for (int n = 16; n >= 2; n -= 2) {  // sin x = x (1 - x^2 / (2 3) (1 - x^2 / (4 5) (1 - ...
    s = 1 - x2 * (1.0 / (n * (n + 1))) * (n == 16 ? 1 : s);
    c = 1 - x2 * (1.0 / (n * (n - 1))) * (n == 16 ? 1 : c);
  }
  s *= x;
  const auto turn = static_cast<int64_t>(quarter) & 3;
  const double even = (turn & 1) != 0 ? c : s, odd = (turn & 1) != 0 ? s : c;
  *sine = (turn & 2) != 0 ? -even : even;
  *cosine = turn == 1 || turn == 2 ? -odd : odd;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SINE_COSINE_CUH_
