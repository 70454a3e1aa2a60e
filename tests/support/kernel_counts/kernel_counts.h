// What the CUDA kernels cost, counted by the emulator and the stand-in on small shapes: bytes, bank
// conflicts, launches, allocations. No clock is read, so the numbers are the same on every machine
// and each has one right value, which a formula of the shape says.
#ifndef KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_KERNEL_COUNTS_H_
#define KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_KERNEL_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvtriage {

struct KernelCount {
  std::string kernel;   // and how it was called
  std::string what;     // what was counted
  std::string formula;  // what it has to be
  uint64_t counted, wanted;

  bool holds() const { return counted == wanted; }
};

// Runs every kernel once or twice in the emulator. One call at a time; takes the emulator's
// counters and the stand-in's script.
std::vector<KernelCount> CountKernels();

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_KERNEL_COUNTS_KERNEL_COUNTS_H_
