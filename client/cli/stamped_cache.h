// A small cache whose rows say where they came from, so that any wrong move shows.
#ifndef KVTRIAGE_CLIENT_CLI_STAMPED_CACHE_H_
#define KVTRIAGE_CLIENT_CLI_STAMPED_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/compress.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::cli {

class StampedCache {
 public:
  // Contiguous f32 rows of `elems`, K and V of every layer one after another.
  static absl::StatusOr<StampedCache> Create(uint32_t tokens, uint32_t layers, uint32_t heads,
                                             uint32_t elems);

  const client::HostMemory& memory() const { return memory_; }
  client::CacheSpec Describe() const;  // over region 0 of the registering call
  client::Sequence WholeSequence(uint64_t id) const;

  // Empty when every (layer, head) kept exactly `rows`, and its first rows now are those rows;
  // else the first place that differs.
  std::string Difference(const std::vector<int32_t>& rows, const client::KeptSets& kept) const;

 private:
  StampedCache(client::HostMemory memory, uint32_t tokens, uint32_t layers, uint32_t heads,
               uint32_t elems)
      : memory_(std::move(memory)),
        tokens_(tokens),
        layers_(layers),
        heads_(heads),
        elems_(elems) {}
  float* Row(uint32_t plane, uint32_t head, uint32_t row) const;  // plane: 2*layer, +1 for V
  static float Stamp(uint32_t plane, uint32_t head, uint32_t row);

  client::HostMemory memory_;
  uint32_t tokens_, layers_, heads_, elems_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_STAMPED_CACHE_H_
