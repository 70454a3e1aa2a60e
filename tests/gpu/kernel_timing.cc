// kernel_timing [--tiny]: how long the kernels take, as shares of a device copy or of bf16 products
// by mma.sync, both measured in the same process right before; best of 20 after three warm runs.
// One row a call: time of its kernels, time of the whole call on the device's stream (the host's
// plans and copies included), share of the ceiling, and what has to be reached. A missed must is
// shown and not judged: the exit code tells whether it ran.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/gpu/ceilings.h"
#include "tests/gpu/device.h"
#include "tests/gpu/launch_clock.h"
#include "tests/gpu/timed_calls.h"

namespace kvtriage::gpu {
namespace {

constexpr int kWarmRuns = 3;

struct Best {
  double kernels = 1e9, call = 1e9;  // seconds
};

Best Time(const TimedCall& timed, int repeats, Workspace& workspace) {
  Best best;
  for (int i = 0; i < kWarmRuns + repeats; ++i) {
    workspace.Reset();
    TakeLaunchSeconds();
    const double call = SecondsOf(workspace.stream(), [&] {
      const absl::Status status = timed.call();
      if (!status.ok()) {
        std::printf("FAILED: %s: %s\n", timed.name.c_str(), status.ToString().c_str());
        std::exit(1);
      }
    });
    const double kernels = TimesLaunches() ? TakeLaunchSeconds() : call;
    if (i < kWarmRuns) continue;
    best = {std::min(best.kernels, kernels), std::min(best.call, call)};
  }
  return best;
}

const char* Verdict(const TimedCall& timed, double reached) {
  if (timed.must == 0) return "";
  const bool shares = timed.bytes > 0;
  if (shares ? reached < timed.must : reached > timed.must) return "must missed";
  return (shares ? reached >= timed.goal : reached <= timed.goal) ? "goal" : "must";
}

void Print(const TimedCall& timed, uint32_t tokens, const Best& best, const Ceilings& ceilings) {
  const bool products = timed.flops > 0;
  const double share = products ? timed.flops / best.kernels / ceilings.mma
                                : static_cast<double>(timed.bytes) / best.kernels / ceilings.copy;
  const double reached = timed.bytes > 0 ? share : best.kernels;
  char bars[64] = "";
  if (timed.must > 0 && timed.bytes > 0) {
    std::snprintf(bars, sizeof bars, "must %.2f goal %.2f", timed.must, timed.goal);
  } else if (timed.must > 0) {
    std::snprintf(bars, sizeof bars, "must %.0f us goal %.0f us", timed.must * 1e6,
                  timed.goal * 1e6);
  }
  std::printf("%-40s %7u tokens  kernels %10.1f us  call %10.1f us  share of %s %5.2f  %s  %s\n",
              timed.name.c_str(), tokens, best.kernels * 1e6, best.call * 1e6,
              products ? "mma" : "copy", timed.bytes > 0 ? share : 0.0, bars,
              Verdict(timed, reached));
  std::fflush(stdout);
}

std::unique_ptr<Workspace> MakeWorkspace(uint64_t bytes) {
  absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(bytes);
  if (!made.ok()) {
    std::printf("FAILED: %s\n", made.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(*made);
}

// As many layers of the model as fit beside the workspace.
uint32_t LayersThatFit(TimedShape shape) {
  size_t free = 0, total = 0;
  Must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  while (shape.layers > 2 && CacheBytes(shape) > free / 10 * 9) shape.layers -= 2;
  return shape.layers;
}

int Run(bool tiny) {
  SetDeviceOrSkip();
  const std::unique_ptr<Workspace> workspace = MakeWorkspace(tiny ? 16 << 20 : 1 << 30);
  const int repeats = tiny ? 1 : 20;
  const auto run = [&](const std::vector<TimedCall>& calls, uint32_t tokens,
                       const Ceilings& ceilings) {
    for (TimedCall timed : calls) {
      if (tiny) timed.must = 0;  // nothing to judge
      Print(timed, tokens, Time(timed, repeats, *workspace), ceilings);
    }
  };
  Ceilings ceilings{};
  for (const uint32_t tokens :
       tiny ? std::vector<uint32_t>{64} : std::vector<uint32_t>{4096, 32768, 131072}) {
    TimedShape shape{tokens, tiny ? 2u : 32u, tiny ? 2u : 8u, tiny ? 16u : 128u, tiny ? 2u : 4u};
    ceilings =
        MeasureCeilings(tiny ? 1 << 16 : uint64_t{1} << 30, tiny ? 1 : 5000, workspace->stream());
    std::printf("ceilings: copy %.3g bytes/s, mma.sync %.3g FLOP/s\n", ceilings.copy, ceilings.mma);
    shape.layers = LayersThatFit(shape);
    std::printf("%u layers\n", shape.layers);
    run(CacheCalls(shape, *workspace), tokens, ceilings);
  }
  const uint32_t rows = tiny ? 100 : 131072;
  run(SelectCalls(rows, tiny ? 2 : 8, tiny ? 3 : 256, *workspace), rows, ceilings);
  return 0;
}

}  // namespace
}  // namespace kvtriage::gpu

int main(int argc, char** argv) {
  return kvtriage::gpu::Run(argc > 1 && std::string(argv[1]) == "--tiny");
}
