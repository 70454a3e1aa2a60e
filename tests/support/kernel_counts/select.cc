// Selection: every score is read once, its key written once and read once a pass.
#include "kernels/cuda/select.h"

#include <random>

#include "tests/support/kernel_counts/counted_call.h"

namespace kvtriage {
namespace {

constexpr uint32_t kRows = 1500, kKept = 300;

CountedCall CountLists(uint32_t layers, uint32_t lists) {
  std::mt19937 random(2);
  std::vector<std::vector<float>> scores(uint64_t{layers} * lists, std::vector<float>(kRows));
  for (std::vector<float>& list : scores) {
    for (float& x : list) x = static_cast<float>(random() % 100000);
  }
  const std::vector<int32_t> none;
  std::vector<SelectRequest> requests(layers, {.rows = kRows, .budget = kKept});
  for (size_t i = 0; i < scores.size(); ++i) {
    requests[i / lists].scores.emplace_back(scores[i]);
    requests[i / lists].protect.emplace_back(none);
  }
  return CountCall([&](Workspace& workspace) {
    std::vector<SelectResult> results;
    return CudaSelectLists(requests, workspace, results);
  });
}

}  // namespace

void CountSelect(std::vector<KernelCount>& counts) {
  constexpr uint32_t kLists = 2, kPasses = 4;  // three digits and the pass that writes
  const CountedCall one = CountLists(1, kLists), many = CountLists(6, kLists);
  const char* kernel = "select";
  counts.push_back({kernel, "bytes of scores and keys read", "lists * rows * 4 * (1 + 4 passes)",
                    one.counters.load_bytes[2], uint64_t{kLists} * kRows * 4 * (1 + kPasses)});
  counts.push_back({kernel, "bytes written", "lists * 4 * (rows + kept)",
                    one.counters.global_store_bytes(), uint64_t{kLists} * 4 * (kRows + kKept)});
  counts.push_back(
      {kernel, "extra shared-memory passes", "0", many.counters.shared_extra_passes, 0});
  counts.push_back({kernel, "launches of 6 layers", "those of 1", many.launches, one.launches});
  counts.push_back({kernel, "launches of 1 layer", "1", one.launches, 1});
  counts.push_back({kernel, "allocations in the call", "0", one.allocations + many.allocations, 0});
}

}  // namespace kvtriage
