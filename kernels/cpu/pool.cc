#include "kernels/cpu/pool.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace kvtriage {

void PoolScores(Pool pool, uint32_t kernel, std::span<float> scores, std::vector<float>& scratch) {
  if (pool == Pool::kNone || kernel <= 1) return;
  const size_t count = scores.size(), half = kernel / 2;
  const bool average = pool == Pool::kAvg;
  const float neutral = average ? 0.0f : -std::numeric_limits<float>::infinity();

  // A padded copy with bad rows neutral; then every output is its own sum from left to right, so
  // equal neighbourhoods give equal bits (a sliding sum would not).
  scratch.assign(count + 2 * half, neutral);
  for (size_t p = 0; p < count; ++p) {
    if (!std::isnan(scores[p])) scratch[half + p] = scores[p];
  }
  constexpr size_t kChunk = 1024;
  float pooled[kChunk];
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t length = std::min(kChunk, count - begin);
    std::fill_n(pooled, length, neutral);
    for (size_t k = 0; k < kernel; ++k) {
      const float* const from = scratch.data() + begin + k;
      if (average) {
        for (size_t i = 0; i < length; ++i) pooled[i] += from[i];
      } else {
        for (size_t i = 0; i < length; ++i) pooled[i] = std::max(pooled[i], from[i]);
      }
    }
    for (size_t i = 0; i < length; ++i) {
      float& score = scores[begin + i];
      if (std::isnan(score)) continue;
      score = average ? pooled[i] / static_cast<float>(kernel) : pooled[i];
    }
  }
}

}  // namespace kvtriage
