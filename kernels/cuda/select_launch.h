// What a selection is started with (select.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SELECT_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SELECT_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage {

inline constexpr uint32_t kSelectThreads = 512;
inline constexpr uint32_t kSelectBins = 2048;  // 11 bits a pass; the last pass uses 10

// Scores that are ranked together: one list, or the lists of a layer (adaptive counts). Element i
// is row i / heads of list i % heads, so that equal scores fall to the lower row, then to the lower
// head. Exactly one of `out` and `counts` is set.
struct SelectSegment {
  const float* const* scores;  // [heads] lists
  const int32_t* candidates;   // [rows] row numbers; null: 0, 1, 2, ...
  const int32_t* protect;  // [protect_count] rows that are taken whatever their score; heads = 1
  uint32_t protect_count;
  uint32_t heads, rows;
  uint32_t k;        // elements to take, protected ones included; 1 .. heads * rows
  uint32_t* keys;    // [heads * rows] working memory
  int32_t* out;      // [k] taken rows, ascending
  uint32_t* counts;  // [heads] taken elements of each list; zero at the start
};

// Shared memory of a block: histogram, sums of warps, results of a scan. A word is left free behind
// every 32 bins, so that threads that read four neighbouring bins each meet different banks.
inline constexpr uint32_t kSelectHistogramWords = kSelectBins + kSelectBins / 32;
inline constexpr size_t kSelectSharedBytes = (kSelectHistogramWords + kSelectThreads / 32 + 4) * 4;

// One block a segment.
cudaError_t LaunchSelect(const SelectSegment* segments, uint32_t count, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SELECT_LAUNCH_H_
