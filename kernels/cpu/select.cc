#include "kvtriage/kernels/select.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/select_rules.h"
#include "kernels/cpu/rank_cut.h"

namespace kvtriage {
namespace {

bool IsOneRun(std::span<const int32_t> rows) {
  return !rows.empty() &&
         static_cast<size_t>(int64_t{rows.back()} - rows.front()) + 1 == rows.size();
}

// The candidates' scores side by side: a part of `scores` where they are one run, else gathered
// into `gathered`.
std::span<const float> ScoresOf(std::span<const float> scores, std::span<const int32_t> candidates,
                                std::vector<float>& gathered) {
  if (candidates.empty()) return {};
  if (IsOneRun(candidates)) {
    return scores.subspan(static_cast<size_t>(candidates.front()), candidates.size());
  }
  gathered.resize(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    gathered[i] = scores[static_cast<size_t>(candidates[i])];
  }
  return gathered;
}

// Of the entries equal to the cut, the first `cut.ties` by row, then by head, go to their heads.
void CountTies(std::span<const std::span<const float>> lists, RankCut cut,
               std::vector<uint64_t>& counts) {
  size_t left = cut.ties;
  for (size_t i = 0; left > 0 && i < lists[0].size(); ++i) {
    for (size_t head = 0; left > 0 && head < lists.size(); ++head) {
      if (RankKey(lists[head][i]) != cut.key) continue;
      ++counts[head];
      --left;
    }
  }
}

}  // namespace

std::vector<int32_t> TopK(std::span<const float> scores, uint32_t k) {
  if (k == 0) return {};
  std::vector<int32_t> rows;
  if (k >= scores.size()) {
    rows.resize(scores.size());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const RankCut cut = FindRankCut({&scores, 1}, k);
  rows.resize(size_t{k} + kWriteBestSlack);
  rows.resize(WriteBest(scores, cut, rows.data()));
  return rows;
}

std::vector<int32_t> TopK(std::span<const float> scores, std::span<const int32_t> candidates,
                          uint32_t k) {
  if (k >= candidates.size()) return {candidates.begin(), candidates.end()};
  std::vector<float> gathered;
  // Candidates ascend, so the lower place is the lower row and ties fall right.
  std::vector<int32_t> rows = TopK(ScoresOf(scores, candidates, gathered), k);
  for (int32_t& row : rows) row = candidates[static_cast<size_t>(row)];
  return rows;
}

std::vector<uint32_t> AdaptiveCounts(std::span<const std::span<const float>> scores,
                                     std::span<const int32_t> candidates, uint32_t slots,
                                     double alpha, uint32_t least) {
  const size_t heads = scores.size();
  const uint64_t total = heads * uint64_t{slots};
  if (total == 0) return std::vector<uint32_t>(heads, 0);

  std::vector<std::vector<float>> gathered(heads);
  std::vector<std::span<const float>> lists(heads);
  for (size_t head = 0; head < heads; ++head) {
    lists[head] = ScoresOf(scores[head], candidates, gathered[head]);
  }
  const RankCut cut = FindRankCut(lists, total);
  std::vector<uint64_t> counts(heads);
  for (size_t head = 0; head < heads; ++head) counts[head] = CountAbove(lists[head], cut);
  CountTies(lists, cut, counts);

  return AdaptiveShares(counts, slots, alpha, least, static_cast<uint32_t>(candidates.size()));
}

std::vector<float> SumScores(std::span<const std::span<const float>> rows) {
  if (rows.empty()) return {};
  std::vector<float> sums(rows[0].begin(), rows[0].end());
  for (const std::span<const float> row : rows.subspan(1)) {
    for (size_t p = 0; p < sums.size(); ++p) sums[p] += row[p];
  }
  return sums;
}

}  // namespace kvtriage
