// Gates without a clock: what the kernels read, write and launch is what a formula says.
#include <gtest/gtest.h>

#include "tests/support/kernel_counts/kernel_counts.h"

namespace kvtriage {
namespace {

TEST(KernelCounts, AreWhatTheFormulasSay) {
  const std::vector<KernelCount> counts = CountKernels();
  EXPECT_FALSE(counts.empty());
  for (const KernelCount& count : counts) {
    EXPECT_EQ(count.counted, count.wanted)
        << count.kernel << ": " << count.what << " (" << count.formula << ")";
  }
}

}  // namespace
}  // namespace kvtriage
