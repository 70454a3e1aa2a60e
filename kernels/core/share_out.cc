#include "kernels/core/share_out.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace kvtriage {
namespace {

// Shares only ever move towards each other here, so `most` holds if it held before.
void RaiseToLeast(std::vector<uint32_t>& shares, uint32_t least) {
  while (true) {
    const auto smallest = std::min_element(shares.begin(), shares.end());
    if (*smallest >= least) return;
    // Max before min, as the rule says; they differ, because a share above `least` must exist.
    const auto largest = std::max_element(shares.begin(), shares.end());
    if (*largest <= least) return;  // the total cannot pay for `least`
    --*largest;
    ++*std::min_element(shares.begin(), shares.end());
  }
}

}  // namespace

std::vector<uint32_t> ShareOut(std::span<const uint64_t> num, uint64_t den, uint64_t total,
                               uint32_t least, uint32_t most) {
  std::vector<uint32_t> shares(num.size());
  if (num.empty()) return shares;
  uint64_t given = 0;
  for (size_t i = 0; i < num.size(); ++i) {
    shares[i] = static_cast<uint32_t>(num[i] / den);
    given += shares[i];
  }
  std::vector<size_t> order(num.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return num[a] % den > num[b] % den; });
  for (size_t i = 0; given < total && i < order.size(); ++i, ++given) ++shares[order[i]];
  RaiseToLeast(shares, least);
  assert(std::accumulate(shares.begin(), shares.end(), uint64_t{0}) == total);
  assert(*std::max_element(shares.begin(), shares.end()) <= most);
  static_cast<void>(most);
  return shares;
}

}  // namespace kvtriage
