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

// Scales of an fp8 cache: constants, or one per row, those times 1, 2 or 3.
struct CacheScales {
  float k = 1.0f, v = 1.0f;
  bool per_row = false;

  static float RowFactor(uint32_t head, uint32_t row) {
    return 1.0f + static_cast<float>((row + head) % 3);
  }
};

// Owns a copy of K and V in `type` and `layout`. All slots that hold no row are NaN: whoever reads
// them shows.
class PlacedCache {
 public:
  // k [heads, rows, dk], v [heads, rows, dv]; `scales` only for fp8.
  PlacedCache(const CacheLayout& layout, DType type, uint32_t q_heads, uint32_t heads,
              uint32_t rows, std::span<const float> k, std::span<const float> v,
              const CacheScales& scales = {});
  PlacedCache(const PlacedCache&) = delete;
  PlacedCache& operator=(const PlacedCache&) = delete;
  LayerRows layer() const { return layer_; }

 private:
  KvView Place(const CacheLayout& layout, DType type, uint32_t heads, bool transposed,
               std::span<const float> x, std::vector<std::byte>& memory, float scale,
               std::vector<float>* row_scales);
  void PlaceScales(float scale, std::vector<float>& memory, KvView& view);

  std::vector<int32_t> table_;
  std::vector<std::byte> k_, v_;
  std::vector<float> k_scales_, v_scales_;
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
