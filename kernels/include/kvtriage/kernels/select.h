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
  // One b per list, where lists have budgets of their own; empty: `budget` holds for all. Not
  // together with adaptive_alpha.
  std::vector<uint32_t> list_budgets;
  // Two stages (CriticalKV): of a list's k free slots, min(k, max(1, floor(k * first_stage))) (none
  // when first_stage = 0) go to the best by `scores`, the others to the best of the rest by
  // `second_scores`, one [N] per list. Empty: one stage.
  std::vector<std::span<const float>> second_scores;
  double first_stage = 0;  // 0..1

  uint32_t BudgetOf(size_t list) const {
    return list_budgets.empty() ? budget : list_budgets[list];
  }
};

// Kept rows per list: protect and the best others, ascending. b >= N keeps all of a list.
struct SelectResult {
  std::vector<std::vector<int32_t>> kept;
  uint32_t stage1 = 0, stage2 = 0;  // rows that the two stages chose, over all lists
};

// out[p] = sum over `rows` in order, in float32; NaN in any row gives NaN. The sum over heads
// (PER_LAYER) or over layers and heads (PER_SEQUENCE).
std::vector<float> SumScores(std::span<const std::span<const float>> rows);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_SELECT_H_
