// The KV cache of one sequence in memory that can be lent: K and V of every layer, contiguous
// float32 rows, one block of `capacity` slots. Heads count their rows one by one, because a policy
// may leave them with different numbers.
#ifndef KVTRIAGE_DECODER_LENT_KV_H_
#define KVTRIAGE_DECODER_LENT_KV_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/attention.h"
#include "client/cpp/example/decoder/model_config.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::decoder {

class LentKv {
 public:
  // Memory is backed when it is touched. `config` must have passed CheckConfig.
  static absl::StatusOr<LentKv> Create(const ModelConfig& config, uint32_t capacity);

  const client::HostMemory& memory() const { return memory_; }
  // The whole cache, over `region` = this memory.
  client::CacheSpec Describe(client::Region region) const;

  uint32_t capacity() const { return capacity_; }
  // Rows of a head, and of the longest one: what the service calls the physical length.
  uint32_t rows(uint32_t layer, uint32_t head) const;
  uint32_t longest() const;
  // Whether all heads of all layers have as many.
  bool even() const;

  float* Key(uint32_t layer, uint32_t head, uint32_t slot) const;
  float* Value(uint32_t layer, uint32_t head, uint32_t slot) const;
  CachedRows Rows(uint32_t layer) const;

  // Writes rows [n][kv_heads][head_size] behind those of every head. They count from Grow on.
  void Write(uint32_t layer, std::span<const float> keys, std::span<const float> values);
  // How far each of `n` rows behind the counted ones sees in each head: itself and all before it.
  std::vector<int32_t> Limits(uint32_t layer, uint32_t n) const;
  void Grow(uint32_t n);

  // Says how many rows a head has left.
  void Shrink(uint32_t layer, uint32_t head, uint32_t rows);
  void Clear();

 private:
  LentKv(const ModelConfig& config, uint32_t capacity, client::HostMemory memory);
  // Floats of K or V of one layer, and where they begin.
  uint64_t plane() const { return uint64_t{config_.kv_width()} * capacity_; }
  float* Plane(uint32_t layer, bool values) const;

  ModelConfig config_;
  uint32_t capacity_;
  client::HostMemory memory_;
  std::vector<uint32_t> rows_;  // [layers][kv_heads]
};

// Floats in lent memory, zeroed. RESOURCE_EXHAUSTED when their number cannot be counted.
absl::StatusOr<client::HostMemory> LentFloats(std::initializer_list<uint64_t> extents);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_LENT_KV_H_
