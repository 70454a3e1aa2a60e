// Scoring on the CPU backend against the arithmetic and memory ceilings.
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/backend.h"
#include "tests/bench/ceilings.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

constexpr uint32_t kQueryHeads = 32, kKvHeads = 8, kHeadSize = 128;

// K and V of one layer with O and LSE given, random but finite; LSE large enough that weights are
// small.
class Problem {
 public:
  Problem(uint32_t rows, uint32_t window, DType dtype)
      : rows_(rows), window_(window), dtype_(dtype) {
    const size_t element = ElementBytes(dtype);
    k_ = Random(size_t{kKvHeads} * rows * kHeadSize, dtype);
    v_ = Random(size_t{kKvHeads} * rows * kHeadSize, dtype);
    q_ = Random(size_t{kQueryHeads} * window * kHeadSize, dtype);
    o_ = Random(size_t{kQueryHeads} * window * kHeadSize, dtype);
    lse_.assign(size_t{kQueryHeads} * window, 12.0f);
    const ViewLayout layout{.head_stride = uint64_t{rows} * kHeadSize * element,
                            .slot_stride = kHeadSize * element,
                            .elem_stride = element,
                            .num_blocks = 1,
                            .block_slots = rows,
                            .heads = kKvHeads,
                            .row_elems = kHeadSize,
                            .dtype = dtype};
    request_.layer = {{k_.data(), layout}, {v_.data(), layout}, {&block_, 0, rows}, kQueryHeads};
    request_.input.source = AttentionSource::kQueryOutput;
    request_.input.scale = 0.088f;
    request_.input.q = Dense(q_);
    request_.input.o = Dense(o_);
    request_.input.lse = {reinterpret_cast<const std::byte*>(lse_.data()),
                          DType::kF32,
                          window,
                          kQueryHeads,
                          1,
                          4,
                          4 * uint64_t{window},
                          4};
    request_.window = window;
    request_.pool_end = rows;
    request_.spec.scorer = Scorer::kObcJoint;
  }

  void Run(Backend& backend) {
    const absl::Status status = backend.Score({&request_, 1}, {}, results_);
    if (!status.ok()) {
      std::fprintf(stderr, "score_bench: %s\n", status.ToString().c_str());
      std::exit(2);
    }
  }
  double operations() const { return 4.0 * kQueryHeads * window_ * rows_ * kHeadSize; }
  double bytes() const {
    return 2.0 * kKvHeads * rows_ * kHeadSize * static_cast<double>(ElementBytes(dtype_));
  }

 private:
  static std::vector<std::byte> Random(size_t count, DType dtype) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::byte> out(count * ElementBytes(dtype));
    for (size_t i = 0; i < count; ++i)
      StoreElement(out.data() + i * ElementBytes(dtype), dtype, normal(random));
    return out;
  }
  TensorView Dense(const std::vector<std::byte>& data) const {
    const uint64_t element = ElementBytes(dtype_);
    return {data.data(),
            dtype_,
            window_,
            kQueryHeads,
            kHeadSize,
            kHeadSize * element,
            uint64_t{window_} * kHeadSize * element,
            element};
  }

  const uint32_t rows_, window_;
  const DType dtype_;
  const int32_t block_ = 0;
  std::vector<std::byte> k_, v_, q_, o_;
  std::vector<float> lse_;
  ScoreRequest request_;
  std::vector<ScoreResult> results_;
};

void Window64(Report& report, int threads) {
  Problem problem(2048, 64, DType::kF32);
  ThreadTeam team(threads);
  const auto backend = MakeCpuBackend(threads);
  report.Measure(
      {"score W=64 f32 obc-joint, share of FMA peak, " + std::to_string(threads) + " thread(s)",
       0.70, 0.80},
      100, [&] {
        const double before = FmaRate(team);
        const double seconds = Seconds([&] { problem.Run(*backend); });
        return Slice{problem.operations() / seconds, std::max(before, FmaRate(team))};
      });
}

void Window1(Report& report, int threads) {
  Problem problem(32768, 1, DType::kBF16);
  ThreadTeam team(threads);
  MemoryCeiling memory(team);
  const auto backend = MakeCpuBackend(threads);
  report.Measure({"score W=1 bf16 obc-joint, share of read bandwidth, " + std::to_string(threads) +
                      " thread(s)",
                  std::nullopt, 0.70},
                 20, [&] {
                   const double before = memory.ReadRate();
                   const double seconds = Seconds([&] { problem.Run(*backend); });
                   return Slice{problem.bytes() / seconds, std::max(before, memory.ReadRate())};
                 });
}

void TwoThreads(Report& report) {
  Problem problem(2048, 64, DType::kF32);
  const auto one = MakeCpuBackend(1), two = MakeCpuBackend(2);
  report.Measure({"score W=64 f32, two threads against one", std::nullopt, 1.95}, 50, [&] {
    const double single = Seconds([&] { problem.Run(*one); });
    return Slice{1 / Seconds([&] { problem.Run(*two); }), 1 / single};
  });
}

int Main() {
  Report report;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Window64(report, 1);
  if (cores > 1) Window64(report, cores);
  Window1(report, cores);
  if (cores > 1) TwoThreads(report);
  return report.ExitCode();
}

}  // namespace
}  // namespace kvtriage::bench

int main() { return kvtriage::bench::Main(); }
