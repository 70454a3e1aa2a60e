#include "tests/support/golden_inputs.h"

#include <algorithm>

#include "kernels/core/splitmix64.h"

namespace kvtriage {

int GridInt(uint64_t stream, uint64_t n) {
  const uint64_t bits = SplitMix64(stream, n);
  int64_t sum = 0;
  for (int lane = 0; lane < 4; ++lane)
    sum += static_cast<int64_t>((bits >> (16 * lane)) & 0xFFFF) - 32768;
  return static_cast<int>(std::clamp<int64_t>(sum / 2048, -127, 127));  // division truncates
}

std::vector<float> GridValues(uint64_t stream, size_t count) {
  std::vector<float> values(count);
  for (size_t n = 0; n < count; ++n) values[n] = static_cast<float>(GridInt(stream, n)) / 16.0f;
  return values;
}

}  // namespace kvtriage
