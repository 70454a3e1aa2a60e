// Top-k selection against nth_element + sort on the same keys, one thread.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "kvtriage/kernels/select.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

std::vector<int32_t> TopKBySorting(const std::vector<float>& scores, uint32_t k) {
  std::vector<int32_t> rows(scores.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::nth_element(rows.begin(), rows.begin() + k, rows.end(), [&](int32_t a, int32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  rows.resize(k);
  std::sort(rows.begin(), rows.end());
  return rows;
}

int Main() {
  Report report;
  for (const uint32_t rows : {131072u, 1048576u}) {
    std::mt19937 random(1);
    std::lognormal_distribution<float> draw(0, 2);
    std::vector<float> scores(rows);
    for (float& score : scores) score = draw(random);
    const uint32_t k = rows / 10;
    std::vector<int32_t> ours, theirs;
    report.Measure({"select " + std::to_string(rows) + " keys, k = 10 %, times nth_element + sort",
                    std::nullopt, 6.0},
                   20, [&] {
                     const double sorting = Seconds([&] { theirs = TopKBySorting(scores, k); });
                     return Slice{1 / Seconds([&] { ours = TopK(scores, k); }), 1 / sorting};
                   });
    if (ours != theirs) {
      std::fprintf(stderr, "select_bench: the kept sets differ\n");
      return 2;
    }
  }
  return report.ExitCode();
}

}  // namespace
}  // namespace kvtriage::bench

int main() { return kvtriage::bench::Main(); }
