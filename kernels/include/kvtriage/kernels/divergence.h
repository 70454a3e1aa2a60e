// CacheBlend (arXiv 2405.16444): how far cached rows are from fresh ones, and which to recompute
// (HKVD tokens: high KV deviation).
#ifndef KVTRIAGE_KERNELS_DIVERGENCE_H_
#define KVTRIAGE_KERNELS_DIVERGENCE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

enum class DivergenceMetric : uint8_t {
  kL2,        // d_p = sum over heads and channels (new - old)^2
  kRelative,  // d_p / (sum old^2 + 1e-6)
};

// Rows of one layer, dense (a view of one block) or paged. Absolute row r is row r - first_row of
// `sequence`.
struct DivergenceRows {
  KvView view;
  SequenceRows sequence;
  uint32_t first_row = 0;
};

struct DivergenceRequest {
  DivergenceRows fresh, cached;   // same heads and row_elems; dtypes may differ
  std::span<const int32_t> rows;  // absolute candidate rows, ascending; no other row is read
  DivergenceMetric metric = DivergenceMetric::kL2;
  bool apart = false;  // kRelative: both sums are wanted, not their quotient
};

// The quotient of the two sums of a row, or of their totals over ranks.
inline float RelativeDivergence(float difference, float old) { return difference / (old + 1e-6f); }

// float32 sums in a fixed order per row; not finite when the row's data is not.
struct DivergenceResult {
  std::vector<float> divergence;  // one per requested row; `apart`: sum (new - old)^2
  std::vector<float> old;         // `apart`: sum old^2; else empty
};

// What to take: a share of the candidates, or all above a threshold. Exactly one is set.
struct HkvdSpec {
  std::optional<double> ratio;  // n = min(|candidates|, trunc(base * ratio)), one double product
  std::optional<double> threshold;  // divergence > threshold
  uint32_t base = 0;
};

struct HkvdResult {
  std::vector<int32_t> rows;  // chosen candidates, ascending
  double gap = 0;             // next divergence / last chosen; 0 when either side is empty or zero
  double divergence_share = 0;  // sum over rows / sum over candidates; 0 when nothing diverges
};

// `candidates` ascending absolute rows, `divergence` (finite) one per candidate; ties go to the
// lower row.
HkvdResult SelectHkvd(std::span<const int32_t> candidates, std::span<const float> divergence,
                      const HkvdSpec& spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_DIVERGENCE_H_
