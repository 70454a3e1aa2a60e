// Keys and values laid out in memory the ways engines do it.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLACED_CACHE_H_
#define KVTRIAGE_TESTS_SUPPORT_PLACED_CACHE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvtriage/kernels/attention.h"

namespace kvtriage {

struct CacheLayout {
  const char* name;
  uint32_t block_slots;  // 0: one block for the whole sequence
  bool transposed_keys;  // channels outside, slots inside
  uint32_t first_slot;
};

// One block; pages in a shuffled order; pages whose keys are transposed.
inline constexpr CacheLayout kCacheLayouts[] = {{"contiguous", 0, false, 0},
                                                {"paged16", 16, false, 5},
                                                {"transposed16", 16, true, 0},
                                                {"transposed32", 32, true, 3}};

// Owns a copy of K and V in `type` and `layout`. All slots that hold no row are NaN: whoever reads
// them shows.
class PlacedCache {
 public:
  // k [heads, rows, dk], v [heads, rows, dv].
  PlacedCache(const CacheLayout& layout, DType type, uint32_t q_heads, uint32_t heads,
              uint32_t rows, std::span<const float> k, std::span<const float> v);
  PlacedCache(const PlacedCache&) = delete;
  PlacedCache& operator=(const PlacedCache&) = delete;
  LayerRows layer() const { return layer_; }

 private:
  KvView Place(const CacheLayout& layout, DType type, uint32_t heads, bool transposed,
               std::span<const float> x, std::vector<std::byte>& memory);

  std::vector<int32_t> table_;
  std::vector<std::byte> k_, v_;
  LayerRows layer_;
};

// A dense input [heads, rows, elems], stored in `type`, rows or heads outermost.
struct DenseTensor {
  std::vector<std::byte> bytes;
  TensorView view;
};
DenseTensor MakeTensor(std::span<const double> x, uint32_t heads, uint32_t rows, uint32_t elems,
                       DType type, bool rows_first);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLACED_CACHE_H_
