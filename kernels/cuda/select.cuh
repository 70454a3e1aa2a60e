// The k best of a segment without sorting: scores become 32-bit keys whose unsigned order is the
// ranking of kvtriage/kernels/select.h; a radix select of 11 + 11 + 10 bits finds the k-th key with
// integer histograms (the order of arrival cannot matter); one pass writes what lies above it and
// the first of what equals it, ascending by construction.
#ifndef KVTRIAGE_KERNELS_CUDA_SELECT_CUH_
#define KVTRIAGE_KERNELS_CUDA_SELECT_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/select_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Above every score, for protected rows: what is taken in any case is not a large score, it is a
// key that no score has.
inline constexpr uint32_t kProtectedKey = 0xFFFFFFFFu;

// NaN 0; both zeros equal.
SIMT_DEVICE uint32_t RankKeyOf(float score) {
  const uint32_t bits = simt::FloatBits(score);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0;
  if (magnitude == 0) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// What the threads of a block share.
struct SelectShared {
  simt::Shared<uint32_t> histogram;  // [kSelectHistogramWords]; bin b is at BinPlace(b)
  simt::Shared<uint32_t> sums;       // [warps]
  simt::Shared<uint32_t> found;      // bin, how many to take of it, total of a scan
};

SIMT_DEVICE uint32_t BinPlace(uint32_t bin) { return bin + bin / 32; }

// Sum of `value` over the threads before this one; the sum over all goes to `total`. By all
// threads.
SIMT_DEVICE uint32_t ScanBlock(const SelectShared& shared, uint32_t value, uint32_t* total) {
  const uint32_t thread = simt::ThreadX(), lane = thread % 32, warp = thread / 32;
  uint32_t sum = value;
  SIMT_UNROLL
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t before = simt::ShuffleUp(simt::kAllLanes, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == 31) shared.sums[warp] = sum;
  simt::SyncThreads();
  uint32_t earlier = 0, all = 0;
  for (uint32_t w = 0; w < kSelectThreads / 32; ++w) {
    const uint32_t of_warp = shared.sums[w];
    if (w < warp) earlier += of_warp;
    all += of_warp;
  }
  simt::SyncThreads();  // before the next scan writes the sums
  *total = all;
  return earlier + sum - value;
}

// The digit of the k-th best: counts the digits `key >> shift & mask` of the keys whose higher bits
// are `prefix`, from the top. Leaves the digit in found[0] and how many of that digit are to be
// taken in found[1].
SIMT_DEVICE void FindDigit(const SelectShared& shared, const uint32_t* keys, uint32_t elements,
                           uint32_t k, uint32_t prefix, uint32_t prefix_shift, uint32_t shift) {
  const uint32_t thread = simt::ThreadX();
  for (uint32_t word = thread; word < kSelectHistogramWords; word += kSelectThreads) {
    shared.histogram[word] = 0;
  }
  simt::SyncThreads();
  for (uint32_t i = thread; i < elements; i += kSelectThreads) {
    const uint32_t key = simt::Load(keys + i);
    if (prefix_shift < 32 && key >> prefix_shift != prefix) continue;
    simt::AtomicAdd(shared.histogram.data() + BinPlace((key >> shift) % kSelectBins), 1u);
  }
  simt::SyncThreads();
  constexpr uint32_t kBins = kSelectBins / kSelectThreads;  // of a thread, from the top
  const uint32_t top = kSelectBins - 1 - thread * kBins;
  uint32_t mine = 0, total = 0;
  for (uint32_t b = 0; b < kBins; ++b) mine += shared.histogram[BinPlace(top - b)];
  uint32_t above = ScanBlock(shared, mine, &total);
  if (above < k && k <= above + mine) {
    uint32_t bin = top;
    while (above + shared.histogram[BinPlace(bin)] < k) above += shared.histogram[BinPlace(bin--)];
    shared.found[0] = bin;
    shared.found[1] = k - above;
  }
  simt::SyncThreads();
}

SIMT_DEVICE void MakeKeys(const SelectSegment& segment) {
  const uint32_t elements = segment.heads * segment.rows;
  for (uint32_t i = simt::ThreadX(); i < elements; i += kSelectThreads) {
    const uint32_t place = i / segment.heads, head = i - place * segment.heads;
    const uint32_t row = segment.candidates == nullptr
                             ? place
                             : static_cast<uint32_t>(simt::Load(segment.candidates + place));
    simt::Store(segment.keys + i, RankKeyOf(simt::Load(simt::Load(segment.scores + head) + row)));
  }
  simt::SyncThreads();
  for (uint32_t i = simt::ThreadX(); i < segment.protect_count; i += kSelectThreads) {
    simt::Store(segment.keys + simt::Load(segment.protect + i), kProtectedKey);
  }
  simt::SyncThreads();
}

// Takes what is above `cut` and the first `ties` of what equals it.
SIMT_DEVICE void TakeBest(const SelectShared& shared, const SelectSegment& segment, uint32_t cut,
                          uint32_t ties) {
  const uint32_t elements = segment.heads * segment.rows;
  uint32_t taken_above = 0, seen_equal = 0;  // in the tiles before
  for (uint32_t tile = 0; tile < elements; tile += kSelectThreads) {
    const uint32_t i = tile + simt::ThreadX();
    const uint32_t key = i < elements ? simt::Load(segment.keys + i) : 0;
    const bool above = i < elements && key > cut, equal = i < elements && key == cut;
    uint32_t total = 0;  // both counts in one word: a tile has at most 512 of each
    const uint32_t before = ScanBlock(shared, (above ? 1u : 0u) | (equal ? 1u << 16 : 0u), &total);
    const uint32_t equal_before = seen_equal + (before >> 16);
    if (above || (equal && equal_before < ties)) {
      const uint32_t at =
          taken_above + (before & 0xFFFFu) + (equal_before < ties ? equal_before : ties);
      if (segment.out != nullptr) {
        simt::Store(segment.out + at, static_cast<int32_t>(i));
      } else {
        simt::AtomicAdd(segment.counts + i % segment.heads, 1u);
      }
    }
    taken_above += total & 0xFFFFu;
    seen_equal += total >> 16;
  }
}

SIMT_KERNEL void SIMT_BOUNDS(kSelectThreads, 2) SelectKernel(const SelectSegment* segments) {
  const SelectSegment& segment = segments[simt::BlockX()];
  const SelectShared shared{simt::Shared<uint32_t>(simt::SharedMemory(0)),
                            simt::Shared<uint32_t>(simt::SharedMemory(kSelectHistogramWords * 4)),
                            simt::Shared<uint32_t>(simt::SharedMemory(
                                (kSelectHistogramWords + kSelectThreads / 32) * 4))};
  const uint32_t elements = segment.heads * segment.rows;
  MakeKeys(segment);
  FindDigit(shared, segment.keys, elements, segment.k, 0, 32, 21);
  const uint32_t high = shared.found[0], left = shared.found[1];
  simt::SyncThreads();
  FindDigit(shared, segment.keys, elements, left, high, 21, 10);
  const uint32_t middle = high << 11 | shared.found[0], rest = shared.found[1];
  simt::SyncThreads();
  // The last ten bits; the bin's lowest bit above them belongs to the prefix.
  FindDigit(shared, segment.keys, elements, rest, middle, 10, 0);
  const uint32_t cut = middle << 10 | (shared.found[0] & 1023u), ties = shared.found[1];
  simt::SyncThreads();
  TakeBest(shared, segment, cut, ties);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SELECT_CUH_
