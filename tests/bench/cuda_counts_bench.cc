// Prints what the CUDA kernels cost in the emulator beside what a formula says. Exit code 1 when a
// count is another one.
#include <cinttypes>
#include <cstdio>

#include "tests/support/kernel_counts/kernel_counts.h"

int main() {
  bool all_hold = true;
  std::printf("%-18s %-34s %12s %12s  %s\n", "kernel", "counted in the emulator", "counted",
              "formula", "");
  for (const kvtriage::KernelCount& count : kvtriage::CountKernels()) {
    all_hold = all_hold && count.holds();
    std::printf("%-18s %-34s %12" PRIu64 " %12" PRIu64 "  %s%s\n", count.kernel.c_str(),
                count.what.c_str(), count.counted, count.wanted, count.formula.c_str(),
                count.holds() ? "" : "  <-- missed");
  }
  return all_hold ? 0 : 1;
}
