// The inner product under every matrix and every attention weight.
#ifndef KVTRIAGE_DECODER_DOT_H_
#define KVTRIAGE_DECODER_DOT_H_

#include <cstddef>

namespace kvtriage::decoder {

// Sums side by side, so that the compiler can add several at once. The order of the additions
// depends on `count` alone: equal inputs give equal bits wherever they stand.
inline float Dot(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (size_t lane = 0; i < count; ++i, ++lane) sums[lane] += a[i] * b[i];
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_DOT_H_
