#include "client/cpp/example/decoder/attention.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/example/decoder/dot.h"

namespace kvtriage::decoder {
namespace {

// One query head of one row over `count` slots.
void AttendHead(const float* query, const float* keys, const float* values, size_t count,
                uint32_t size, std::vector<float>& weights, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  weights.resize(count);
  for (size_t slot = 0; slot < count; ++slot) {
    weights[slot] = Dot(query, keys + slot * size, size) * scale;
  }
  const float most = *std::max_element(weights.begin(), weights.end());
  float sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - most);
  std::fill(out, out + size, 0.0f);
  for (size_t slot = 0; slot < count; ++slot) {
    const float weight = weights[slot] / sum;
    for (uint32_t c = 0; c < size; ++c) out[c] += weight * values[slot * size + c];
  }
}

}  // namespace

std::vector<float> Attend(std::span<const float> queries, uint32_t query_heads,
                          const CachedRows& cached, std::span<const int32_t> limits) {
  const uint32_t group = query_heads / cached.kv_heads, size = cached.head_size;
  const size_t rows = limits.size() / cached.kv_heads;
  std::vector<float> out(queries.size()), weights;
  for (size_t row = 0; row < rows; ++row) {
    for (uint32_t head = 0; head < query_heads; ++head) {
      const uint32_t kv_head = head / group;
      const size_t at = (row * query_heads + head) * size;
      AttendHead(queries.data() + at, cached.keys + kv_head * cached.head_stride,
                 cached.values + kv_head * cached.head_stride,
                 static_cast<size_t>(limits[row * cached.kv_heads + kv_head]), size, weights,
                 out.data() + at);
    }
  }
  return out;
}

}  // namespace kvtriage::decoder
