// A machine without a driver: no folder. A program of its own, as the environment is read once.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage {
namespace {

TEST(NoDriver, CallsSaySo) {
  int count = 5, version = 5;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 0);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 13000,
                                             cudaEnableDefault, &found),
            cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
}

}  // namespace
}  // namespace kvtriage
