#include "tests/support/kernel_counts/counted_call.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

constexpr uint32_t kBlockSlots = 16;
constexpr uint64_t kWorkspaceBytes = 8 << 20;

[[noreturn]] void Stop(const absl::Status& status) {
  std::fprintf(stderr, "a counted call failed: %s\n", status.ToString().c_str());
  std::exit(1);
}

Workspace& CountedWorkspace() {
  static const TempDir folder;  // of the stand-in, which reads the environment at its first call
  setenv("KVTRIAGE_FAKE_CUDA", folder.path().c_str(), 0);
  if (cudaSetDevice(0) != cudaSuccess) Stop(absl::InternalError("cudaSetDevice"));
  static const absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(kWorkspaceBytes);
  if (!made.ok()) Stop(made.status());
  return **made;
}

}  // namespace

CountedCall CountCall(const std::function<absl::Status(Workspace&)>& call) {
  Workspace& workspace = CountedWorkspace();
  workspace.Reset();
  const emulation::Options before = emulation::GetOptions();
  emulation::SetOptions({.seed = 1, .count_accesses = true});
  fake_cuda::Script("");
  emulation::TakeCounters();
  const absl::Status status = call(workspace);
  if (!status.ok()) Stop(status);
  emulation::SetOptions(before);
  std::map<std::string, uint64_t> calls = fake_cuda::Counts();
  return {.counters = emulation::TakeCounters(),
          .launches = calls["launch"],
          .allocations = calls["cudaMalloc"] + calls["cudaHostAlloc"]};
}

CountedCache::CountedCache(uint32_t layers, uint32_t rows, uint32_t heads, uint32_t row_elems)
    : row_bytes(uint64_t{2} * row_elems) {
  const uint32_t blocks = (rows + kBlockSlots - 1) / kBlockSlots;
  const ViewLayout layout{.block_stride = kBlockSlots * heads * row_bytes,
                          .head_stride = kBlockSlots * row_bytes,
                          .slot_stride = row_bytes,
                          .elem_stride = 2,
                          .num_blocks = blocks,
                          .block_slots = kBlockSlots,
                          .heads = heads,
                          .row_elems = row_elems,
                          .dtype = DType::kBF16};
  const uint64_t layer_bytes = blocks * layout.block_stride;
  memory_.assign(layers * layer_bytes, std::byte{0x3C});
  for (uint32_t layer = 0; layer < layers; ++layer) {
    views.push_back({.base = memory_.data() + layer * layer_bytes, .layout = layout, .scales = {}});
  }
  table_.resize(blocks);
  std::iota(table_.rbegin(), table_.rend(), 0);
  sequence = {table_.data(), 0, rows};
}

std::vector<KernelCount> CountKernels() {
  std::vector<KernelCount> counts;
  CountMovers(counts);
  CountDivergence(counts);
  CountSelect(counts);
  CountScorers(counts);
  CountRowScorers(counts);
  return counts;
}

}  // namespace kvtriage
