#include "tests/bench/ceilings.h"

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

#if HWY_ARCH_X86
// Independent chains of fused multiply-adds, in assembly so that no compiler can shorten them.
// Twelve chains cover latency 4 at two a cycle with room to spare.
constexpr int kChains = 12;

#define KVTRIAGE_CHAINS(OP, R) \
  OP(R, 0)                     \
  OP(R, 1)                     \
  OP(R, 2) OP(R, 3) OP(R, 4) OP(R, 5) OP(R, 6) OP(R, 7) OP(R, 8) OP(R, 9) OP(R, 10) OP(R, 11)
#define KVTRIAGE_FMA(R, N) "vfmadd231ps %%" R "12,%%" R "13,%%" R #N "\n"

double FmaLoop256(int64_t loops) {
  asm volatile(
      "vxorps %%ymm12,%%ymm12,%%ymm12\nvxorps %%ymm13,%%ymm13,%%ymm13\n1:\n" KVTRIAGE_CHAINS(
          KVTRIAGE_FMA, "ymm") "dec %0\njnz 1b\n"
      : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
  return 8 * 2 * kChains;
}

double FmaLoop512(int64_t loops) {
  asm volatile(
      "vpxord %%zmm12,%%zmm12,%%zmm12\nvpxord %%zmm13,%%zmm13,%%zmm13\n1:\n" KVTRIAGE_CHAINS(
          KVTRIAGE_FMA, "zmm") "dec %0\njnz 1b\n"
      : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
  return 16 * 2 * kChains;
}

double FmaLoop(int64_t loops) {
  const bool wide = (hwy::SupportedTargets() & HWY_AVX3) != 0;
  return wide ? FmaLoop512(loops) : FmaLoop256(loops);
}
#else
// Elsewhere: what the compiler makes of the same chains, which is close to the peak but not a
// bound.
double FmaLoop(int64_t loops) {
  constexpr int kChains = 48;
  alignas(64) float chain[kChains] = {};
  volatile float factor = 1.0f;
  const float f = factor;
  for (int64_t i = 0; i < loops; ++i) {
    for (float& x : chain) x = x * f + f;
  }
  volatile float sink = chain[0];
  (void)sink;
  return 2 * kChains;
}
#endif

constexpr size_t kMemoryBytes = size_t{256} << 20;
constexpr size_t kPieces = 64;

// Four streams at once: one alone does not keep enough lines in flight to reach the memory's rate.
uint64_t ReadAll(const std::byte* from, size_t bytes) {
  constexpr size_t kStreams = 4;
  uint64_t sums[kStreams] = {};
  const size_t part = bytes / kStreams;
  for (size_t at = 0; at + 64 <= part; at += 64) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      uint64_t line[8];
      std::memcpy(line, from + stream * part + at, sizeof line);
      for (const uint64_t word : line) sums[stream] += word;
    }
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

double FmaRate(ThreadTeam& team) {
  constexpr int64_t kLoops = 400'000;
  const int threads = team.threads();
  double per_loop = 0;
  const double seconds = Seconds([&] {
    team.Run(static_cast<size_t>(threads), [&](size_t item, int) {
      const double operations = FmaLoop(kLoops);
      if (item == 0) per_loop = operations;
    });
  });
  return per_loop * static_cast<double>(kLoops) * threads / seconds;
}

MemoryCeiling::MemoryCeiling(ThreadTeam& team)
    : team_(team), from_(kMemoryBytes, std::byte{1}), to_(kMemoryBytes, std::byte{2}) {}

double MemoryCeiling::ReadRate() {
  const size_t piece = kMemoryBytes / kPieces;
  uint64_t sums[kPieces];
  const double seconds = Seconds([&] {
    team_.Run(kPieces,
              [&](size_t item, int) { sums[item] = ReadAll(from_.data() + item * piece, piece); });
  });
  volatile uint64_t sink = sums[0];
  (void)sink;
  return static_cast<double>(kMemoryBytes) / seconds;
}

double MemoryCeiling::CopyRate() {
  const size_t piece = kMemoryBytes / kPieces;
  const double seconds = Seconds([&] {
    team_.Run(kPieces, [&](size_t item, int) {
      std::memcpy(to_.data() + item * piece, from_.data() + item * piece, piece);
    });
  });
  return 2.0 * static_cast<double>(kMemoryBytes) / seconds;
}

}  // namespace kvtriage::bench
