// HKVD: both sides are read once.
#include <numeric>

#include "kernels/cuda/divergence.h"
#include "tests/support/kernel_counts/counted_call.h"

namespace kvtriage {

void CountDivergence(std::vector<KernelCount>& counts) {
  constexpr uint32_t kRows = 90, kHeads = 3, kElems = 128;
  CountedCache fresh(1, kRows, kHeads, kElems), cached(1, kRows, kHeads, kElems);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const CountedCall call = CountCall([&](Workspace& workspace) {
    DivergenceResult result;
    return CudaDivergeRows({.fresh = {fresh.views[0], fresh.sequence, 0},
                            .cached = {cached.views[0], cached.sequence, 0},
                            .rows = rows},
                           workspace, result);
  });
  const char* kernel = "divergence";
  counts.push_back({kernel, "bytes of rows read, 16 at a time", "2 * row bytes * heads * rows",
                    call.counters.load_bytes[4], uint64_t{2} * kRows * kHeads * kElems * 2});
  counts.push_back(
      {kernel, "bytes written", "4 * rows", call.counters.global_store_bytes(), 4 * kRows});
  counts.push_back(
      {kernel, "extra shared-memory passes", "0", call.counters.shared_extra_passes, 0});
  counts.push_back({kernel, "launches", "1", call.launches, 1});
  counts.push_back({kernel, "allocations in the call", "0", call.allocations, 0});
}

}  // namespace kvtriage
