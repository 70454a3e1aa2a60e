// A machine without a driver, and one without a device. A program of its own: the stand-in reads
// the environment once.
#include <gtest/gtest.h>

#include <string>

#include "service/memory/cuda_device.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

TEST(NoCudaDevice, AMachineWithoutADriverIsToldApart) {
  const auto devices = ListCudaDevices();
  EXPECT_EQ(ReasonOf(devices.status()), "no_device");
  EXPECT_EQ(std::string(devices.status().message()), "no CUDA driver is installed");
}

}  // namespace
}  // namespace kvtriage
