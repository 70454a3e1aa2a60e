// A three-layer transformer in float64, small enough to blend end to end: 32 channels, 4 query
// heads, 2 KV heads of 8 channels, RoPE base 10,000. The same as `Toy` of tests/golden/ref_np.py.
#ifndef KVTRIAGE_TESTS_SUPPORT_TOY_TRANSFORMER_H_
#define KVTRIAGE_TESTS_SUPPORT_TOY_TRANSFORMER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvtriage {

using Doubles = std::vector<double>;

class ToyTransformer {
 public:
  static constexpr uint32_t kChannels = 32, kQueryHeads = 4, kKvHeads = 2, kHeadSize = 8,
                            kLayers = 3;
  static constexpr uint32_t kKvRow = kKvHeads * kHeadSize;  // doubles of one K or V row

  explicit ToyTransformer(uint64_t case_number);

  // The input of `rows` tokens.
  static Doubles Tokens(uint64_t stream, uint32_t rows);

  struct Projected {
    Doubles q;     // [rows, query heads, 8], rotated
    Doubles k, v;  // [rows, KV heads, 8], K rotated
  };
  Projected Project(uint32_t layer, std::span<const double> x,
                    std::span<const int32_t> positions) const;
  // The residual stream behind a layer for rows x, whose row i sees the first limits[i] rows of K
  // and V.
  Doubles Step(uint32_t layer, std::span<const double> x, std::span<const double> q,
               std::span<const double> k, std::span<const double> v,
               std::span<const int32_t> limits) const;

  struct Prefilled {
    std::vector<Doubles> k, v;  // per layer
    Doubles out;
  };
  // Causal, with positions 0, 1, 2, ...
  Prefilled Prefill(std::span<const double> x) const;

  // Turns K rows by `distance` positions.
  static void Rotate(std::span<double> k, int64_t distance);

 private:
  struct Layer {
    Doubles q, k, v, o, m;  // row-major [in, out]
  };
  std::vector<Layer> layers_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_TOY_TRANSFORMER_H_
