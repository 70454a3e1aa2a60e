// Where the k best of some scores end. Scores become 32-bit keys whose unsigned order is the
// ranking of select.h (NaN 0, both zeros equal), and a radix select of 11 + 11 + 10 bits finds the
// k-th key without sorting.
#ifndef KVTRIAGE_KERNELS_CPU_RANK_CUT_H_
#define KVTRIAGE_KERNELS_CPU_RANK_CUT_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvtriage {

// The k best are all scores with a key above `key` and `ties` of those equal to it.
struct RankCut {
  uint32_t key = 0;
  size_t ties = 0;
};

// The ranking key of one score.
uint32_t RankKey(float score);

// The cut of the k best over all lists together; 1 <= k <= their total size, which is below 2^32.
RankCut FindRankCut(std::span<const std::span<const float>> lists, size_t k);

// How many scores rank strictly above the cut.
size_t CountAbove(std::span<const float> scores, RankCut cut);

// Indices WriteBest may write past its result.
inline constexpr size_t kWriteBestSlack = 64;

// Writes the ascending indices of the scores above the cut and of the first `cut.ties` at it, and
// returns their number. `out` has room for that many and kWriteBestSlack.
size_t WriteBest(std::span<const float> scores, RankCut cut, int32_t* out);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_RANK_CUT_H_
