#include "kernels/cpu/rank_cut.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rank_cut.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/rank_cut-inl.h"

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(CountTopDigits);
HWY_EXPORT(CollectDigit);
HWY_EXPORT(CountAboveKey);
HWY_EXPORT(WriteBestIndices);

namespace {

constexpr size_t kBins = 2048;

// The digit in which the `rank`-th largest (from 1) lies; `rank` becomes its rank inside that
// digit.
uint32_t FindDigit(const uint32_t* bins, size_t count, size_t& rank) {
  for (size_t digit = count - 1;; --digit) {
    if (bins[digit] >= rank || digit == 0) return static_cast<uint32_t>(digit);
    rank -= bins[digit];
  }
}

}  // namespace

uint32_t RankKey(float score) {
  if (score != score) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

RankCut FindRankCut(std::span<const std::span<const float>> lists, size_t k) {
  std::array<uint32_t, 4 * kBins> copies{};
  for (const std::span<const float> list : lists) {
    HWY_DYNAMIC_DISPATCH(CountTopDigits)(list.data(), list.size(), copies.data());
  }
  std::array<uint32_t, kBins> bins;
  for (size_t i = 0; i < kBins; ++i) {
    bins[i] = copies[i] + copies[kBins + i] + copies[2 * kBins + i] + copies[3 * kBins + i];
  }
  size_t rank = k;
  const uint32_t top = FindDigit(bins.data(), kBins, rank);

  // Only keys with the top digit of the cut matter from here on.
  const auto found = std::make_unique_for_overwrite<uint32_t[]>(bins[top] + kWriteBestSlack);
  size_t count = 0;
  for (const std::span<const float> list : lists) {
    count += HWY_DYNAMIC_DISPATCH(CollectDigit)(list.data(), list.size(), top, found.get() + count);
  }
  bins.fill(0);
  for (size_t i = 0; i < count; ++i) ++bins[(found[i] >> 10) & (kBins - 1)];
  const uint32_t middle = top << 11 | FindDigit(bins.data(), kBins, rank);
  bins.fill(0);
  for (size_t i = 0; i < count; ++i) {
    if (found[i] >> 10 == middle) ++bins[found[i] & 1023];
  }
  const uint32_t low = FindDigit(bins.data(), 1024, rank);
  return {.key = middle << 10 | low, .ties = rank};
}

size_t CountAbove(std::span<const float> scores, RankCut cut) {
  return HWY_DYNAMIC_DISPATCH(CountAboveKey)(scores.data(), scores.size(), cut.key);
}

size_t WriteBest(std::span<const float> scores, RankCut cut, int32_t* out) {
  return HWY_DYNAMIC_DISPATCH(WriteBestIndices)(scores.data(), scores.size(), cut.key, cut.ties,
                                                out);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
