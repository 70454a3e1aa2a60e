// Grouped-query attention of some rows over rows of a cache, with a causal limit of its own for
// every row and KV head: a cache that has lost rows, or whose heads have lost different ones, and
// rows that are recomputed in the middle of a sequence, all need no more than that.
#ifndef KVTRIAGE_DECODER_ATTENTION_H_
#define KVTRIAGE_DECODER_ATTENTION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvtriage::decoder {

// K and V of one layer: [kv_heads][slots][head_size], head_stride floats from a head to the next.
struct CachedRows {
  const float* keys = nullptr;
  const float* values = nullptr;
  uint64_t head_stride = 0;
  uint32_t kv_heads = 0;
  uint32_t head_size = 0;
};

// queries [rows][query_heads][head_size] -> outputs of the same shape. Query head h reads KV head
// h / (query_heads / kv_heads). Row i sees slots [0, limits[i * kv_heads + head]) of each KV head;
// every limit is at least 1. Weights are softmax(q . k / sqrt(head_size)).
std::vector<float> Attend(std::span<const float> queries, uint32_t query_heads,
                          const CachedRows& cached, std::span<const int32_t> limits);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_ATTENTION_H_
