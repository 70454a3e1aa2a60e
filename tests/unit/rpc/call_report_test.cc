#include "service/rpc/call_report.h"

#include "gtest/gtest.h"

namespace kvtriage {
namespace {

TEST(CallReport, TraceIdComesOnlyFromAWellFormedHeader) {
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(TraceIdOf("00-" + id + "-00f067aa0ba902b7-01"), id);
  EXPECT_EQ(TraceIdOf(""), "");
  EXPECT_EQ(TraceIdOf("00-" + id + "-00f067aa0ba902b7"), "");
  EXPECT_EQ(TraceIdOf("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"), "")
      << "lower case only";
  EXPECT_EQ(TraceIdOf("00-4bf92f3577b34da6a3ce929d0e0e47\"6-00f067aa0ba902b7-01"), "");
  EXPECT_EQ(TraceIdOf(std::string(55, '-')), "");
}

}  // namespace
}  // namespace kvtriage
