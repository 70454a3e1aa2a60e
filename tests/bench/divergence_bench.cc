// HKVD divergence of bf16 rows against read bandwidth.
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/backend.h"
#include "tests/bench/ceilings.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

void Bf16Rows(Report& report, int threads) {
  constexpr uint32_t kRows = 65536, kHeads = 8, kHeadSize = 128;
  constexpr uint64_t kRowBytes = uint64_t{kHeads} * kHeadSize * 2;
  std::vector<uint16_t> fresh(size_t{kRows} * kHeads * kHeadSize, 0x3F80),
      cached(fresh.size(), 0x3F00);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const int32_t block = 0;
  const ViewLayout layout{.head_stride = kHeadSize * 2,
                          .slot_stride = kRowBytes,
                          .elem_stride = 2,
                          .num_blocks = 1,
                          .block_slots = kRows,
                          .heads = kHeads,
                          .row_elems = kHeadSize,
                          .dtype = DType::kBF16};
  const auto side = [&](std::vector<uint16_t>& data) {
    return DivergenceRows{
        {reinterpret_cast<std::byte*>(data.data()), layout}, {&block, 0, kRows}, 0};
  };
  const DivergenceRequest request{side(fresh), side(cached), rows, DivergenceMetric::kL2};
  ThreadTeam team(threads);
  MemoryCeiling memory(team);
  const auto backend = MakeCpuBackend(threads);
  DivergenceResult result;
  report.Measure(
      {"HKVD divergence bf16, share of read bandwidth, " + std::to_string(threads) + " thread(s)",
       std::nullopt, 0.80},
      15, [&] {
        const double before = memory.ReadRate();
        const double seconds = Seconds([&] {
          if (!backend->Diverge(request, result).ok()) std::exit(2);
        });
        return Slice{2.0 * kRows * kRowBytes / seconds, std::max(before, memory.ReadRate())};
      });
  const float want = 0.25f * kHeads * kHeadSize;  // (1 - 0.5)^2 per element
  if (result.divergence.front() != want || result.divergence.back() != want) {
    std::fprintf(stderr, "divergence_bench: got %f, want %f\n", result.divergence.front(), want);
    std::exit(2);
  }
}

int Main() {
  Report report;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Bf16Rows(report, 1);
  if (cores > 1) Bf16Rows(report, cores);
  return report.ExitCode();
}

}  // namespace
}  // namespace kvtriage::bench

int main() { return kvtriage::bench::Main(); }
