// How a chosen set is compared with a golden one.
#ifndef KVTRIAGE_TESTS_GOLDEN_GOLDEN_SET_H_
#define KVTRIAGE_TESTS_GOLDEN_GOLDEN_SET_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace kvtriage {

using RowList = std::vector<int32_t>;

inline RowList Difference(const RowList& a, const RowList& b) {
  RowList out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

inline RowList Union(const RowList& a, const RowList& b) {
  RowList out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// As large as `exact` (the reference's set), with all of its rows but those in `pool` (rows too
// near the cut to tell), and nothing else but rows of the pool. All three ascend. An empty pool
// asks for equality.
inline bool MatchesGolden(const RowList& chosen, const RowList& exact, const RowList& pool) {
  const RowList must = Difference(exact, pool), extra = Difference(chosen, must);
  return chosen.size() == exact.size() && Difference(must, chosen).empty() &&
         Difference(extra, pool).empty();
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_GOLDEN_SET_H_
