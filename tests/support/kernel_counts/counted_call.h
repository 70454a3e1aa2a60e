// One call of the CUDA backend with everything counted.
#ifndef KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_COUNTED_CALL_H_
#define KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_COUNTED_CALL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kernels/emulation/emulation.h"
#include "kvtriage/kernels/views.h"
#include "tests/support/kernel_counts/kernel_counts.h"

namespace kvtriage {

struct CountedCall {
  emulation::Counters counters;
  uint64_t launches, allocations;  // allocations: of device or pinned memory, during the call
};

// Ends the process when the call fails: the counts of a failed call mean nothing.
CountedCall CountCall(const std::function<absl::Status(Workspace&)>& call);

// Views of `layers` layers over one buffer of the host's, bf16 rows in blocks of 16.
struct CountedCache {
  CountedCache(uint32_t layers, uint32_t rows, uint32_t heads, uint32_t row_elems);

  std::vector<KvView> views;
  SequenceRows sequence;
  uint64_t row_bytes;

 private:
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

// Ones, dense, [rows, heads, elems] in bf16.
struct CountedTensor {
  CountedTensor(uint32_t rows, uint32_t heads, uint32_t elems)
      : memory(uint64_t{rows} * heads * elems, 0x3F80),
        view{.base = reinterpret_cast<const std::byte*>(memory.data()),
             .dtype = DType::kBF16,
             .rows = rows,
             .heads = heads,
             .elems = elems,
             .row_stride = uint64_t{2} * heads * elems,
             .head_stride = uint64_t{2} * elems,
             .elem_stride = 2} {}

  std::vector<uint16_t> memory;
  TensorView view;
};

// One file per family of kernels; each adds its rows to the table.
void CountMovers(std::vector<KernelCount>& counts);
void CountDivergence(std::vector<KernelCount>& counts);
void CountSelect(std::vector<KernelCount>& counts);
void CountScorers(std::vector<KernelCount>& counts);
void CountRowScorers(std::vector<KernelCount>& counts);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_COUNTED_CALL_H_
