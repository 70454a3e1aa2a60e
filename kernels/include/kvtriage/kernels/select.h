// Which rows stay. Ranking is one total order on every backend: score descending, equal scores
// lower row first; -0 equals +0; +Inf is highest; NaN of any sign comes after every number.
#ifndef KVTRIAGE_KERNELS_SELECT_H_
#define KVTRIAGE_KERNELS_SELECT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvtriage {

// The k best of `candidates` (ascending row numbers into `scores`), ascending. k <=
// candidates.size().
std::vector<int32_t> TopK(std::span<const float> scores, std::span<const int32_t> candidates,
                          uint32_t k);

// The k best of all rows of `scores`, ascending. k <= scores.size().
std::vector<int32_t> TopK(std::span<const float> scores, uint32_t k);

// Free slots per head that add up to heads * slots (AdaKV, arXiv 2407.11550, with an exact total):
// c_h = how many of the heads*slots best candidates of the layer belong to head h (score down, then
// lower row, then lower head); shares a*slots + (65536-a)*c_h with a = ceil(alpha*65536), largest
// remainder, at most `candidates.size()`; no head ends below `least`. `scores` is [heads, rows].
std::vector<uint32_t> AdaptiveCounts(std::span<const std::span<const float>> scores,
                                     std::span<const int32_t> candidates, uint32_t slots,
                                     double alpha, uint32_t least);

// Lists that share one budget rule: the KV heads of a layer, or the one list of a layer or
// sequence.
struct SelectRequest {
  uint32_t rows = 0;    // N
  uint32_t budget = 0;  // b, rows kept per list (on average with adaptive_alpha); 1 <= b
  std::vector<std::span<const float>> scores;     // one [N] per list
  std::vector<std::span<const int32_t>> protect;  // one ascending set per list, size <= b
  std::optional<double> adaptive_alpha;  // shares heads*b over the lists; all protect equal
};

// Kept rows per list: protect and the best others, ascending. b >= N keeps all.
struct SelectResult {
  std::vector<std::vector<int32_t>> kept;
};

// out[p] = sum over `rows` in order, in float32; NaN in any row gives NaN. The sum over heads
// (PER_LAYER) or over layers and heads (PER_SEQUENCE).
std::vector<float> SumScores(std::span<const std::span<const float>> rows);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_SELECT_H_
