// The news of a lost device, whenever it comes.
#include "service/app/loss_report.h"

#include <gtest/gtest.h>

namespace kvtriage {
namespace {

TEST(LossReport, IsToldToWhoeverListens) {
  LossReport report;
  int told = 0;
  report.SetReceiver([&told] { ++told; });
  EXPECT_EQ(told, 0);
  report.Tell();
  EXPECT_EQ(told, 1);
  report.SetReceiver(nullptr);
  report.Tell();
  EXPECT_EQ(told, 1);
}

TEST(LossReport, WaitsForAListener) {
  LossReport report;
  report.Tell();
  int told = 0;
  report.SetReceiver([&told] { ++told; });
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace kvtriage
