// In-place compaction against memcpy: plain rows, and keys stored transposed inside their blocks.
#include <cstdio>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/backend.h"
#include "tests/bench/ceilings.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

std::vector<int32_t> RandomRows(uint32_t rows, double share) {
  std::mt19937 random(1);
  std::bernoulli_distribution keep(share);
  std::vector<int32_t> kept;
  for (uint32_t row = 0; row < rows; ++row) {
    if (keep(random)) kept.push_back(static_cast<int32_t>(row));
  }
  return kept;
}

// `layers` views of one buffer, all heads keeping the same rows.
class Problem {
 public:
  Problem(uint32_t layers, const ViewLayout& layout, uint32_t rows, uint64_t layer_bytes,
          double share)
      : memory_(layers * layer_bytes, std::byte{1}),
        kept_(RandomRows(rows, share)),
        table_(layout.num_blocks) {
    std::iota(table_.begin(), table_.end(), 0);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      const KvView view{memory_.data() + layer * layer_bytes, layout};
      MoveRequest request{view,
                          {table_.data(), 0, rows},
                          view,
                          {table_.data(), 0, static_cast<uint32_t>(kept_.size())},
                          {}};
      request.kept.assign(layout.heads, kept_);
      requests_.push_back(std::move(request));
    }
  }
  void Run(Backend& backend) {
    MoveResult result;
    const absl::Status status = backend.Move(requests_, result);
    if (!status.ok() || result.bytes_written == 0) {
      std::fprintf(stderr, "compact_bench: %s\n", status.ToString().c_str());
      std::exit(2);
    }
  }
  double kept() const { return static_cast<double>(kept_.size()); }

 private:
  std::vector<std::byte> memory_;
  std::vector<int32_t> kept_;
  std::vector<int32_t> table_;
  std::vector<MoveRequest> requests_;
};

// Rows of 256 bytes (128 half-precision elements), four heads, half kept: 2 * kept bytes must move.
void PlainRows(Report& report, int threads) {
  constexpr uint32_t kRows = 262144, kHeads = 4, kRowBytes = 256;
  const ViewLayout layout{.head_stride = uint64_t{kRows} * kRowBytes,
                          .slot_stride = kRowBytes,
                          .elem_stride = 2,
                          .num_blocks = 1,
                          .block_slots = kRows,
                          .heads = kHeads,
                          .row_elems = kRowBytes / 2,
                          .dtype = DType::kBF16};
  Problem problem(1, layout, kRows, uint64_t{kHeads} * kRows * kRowBytes, 0.5);
  ThreadTeam team(threads);
  MemoryCeiling memory(team);
  const auto backend = MakeCpuBackend(threads);
  report.Measure({"compaction, keep half, 256-byte rows, share of memcpy, " +
                      std::to_string(threads) + " thread(s)",
                  0.50, 0.70},
                 15, [&] {
                   const double before = memory.CopyRate();
                   const double seconds = Seconds([&] { problem.Run(*backend); });
                   return Slice{2.0 * kHeads * kRowBytes * problem.kept() / seconds,
                                std::max(before, memory.CopyRate())};
                 });
}

// Keys of 30 layers, 3 heads, head size 64, float32, block 64: nearly every line is touched
// whatever is kept, so the work is (rows + kept) rows.
void TransposedKeys(Report& report, int threads) {
  constexpr uint32_t kLayers = 30, kHeads = 3, kHeadSize = 64, kBlock = 64, kBlocks = 94,
                     kRows = kBlock * kBlocks;
  const ViewLayout layout{.block_stride = uint64_t{kHeads} * kHeadSize * kBlock * 4,
                          .head_stride = uint64_t{kHeadSize} * kBlock * 4,
                          .slot_stride = 4,
                          .elem_stride = kBlock * 4,
                          .num_blocks = kBlocks,
                          .block_slots = kBlock,
                          .heads = kHeads,
                          .row_elems = kHeadSize,
                          .dtype = DType::kF32};
  Problem problem(kLayers, layout, kRows, uint64_t{kBlocks} * layout.block_stride, 0.5);
  ThreadTeam team(threads);
  MemoryCeiling memory(team);
  const auto backend = MakeCpuBackend(threads);
  report.Measure({"compaction of transposed keys, keep half, block 64, share of memcpy, " +
                      std::to_string(threads) + " thread(s)",
                  0.40, 0.60},
                 15, [&] {
                   const double before = memory.CopyRate();
                   const double seconds = Seconds([&] { problem.Run(*backend); });
                   const double bytes =
                       double{kLayers} * kHeads * kHeadSize * 4 * (kRows + problem.kept());
                   return Slice{bytes / seconds, std::max(before, memory.CopyRate())};
                 });
}

int Main() {
  Report report;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  PlainRows(report, 1);
  if (cores > 1) PlainRows(report, cores);
  TransposedKeys(report, 1);
  if (cores > 1) TransposedKeys(report, cores);
  return report.ExitCode();
}

}  // namespace
}  // namespace kvtriage::bench

int main() { return kvtriage::bench::Main(); }
