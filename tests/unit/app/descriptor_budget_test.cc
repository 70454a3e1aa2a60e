#include "service/app/descriptor_budget.h"

#include <sys/resource.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvtriage {
namespace {

TEST(DescriptorBudget, RaisesTheSoftLimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < DescriptorsNeeded(Limits{})) GTEST_SKIP() << "hard limit is too low here";
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(CheckDescriptorBudget(Limits{}).ok());
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(DescriptorBudget, NamesBothNumbers) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  Limits limits;
  limits.max_bound_sessions = 4'000'000'000;  // no system allows eight milliards of descriptors
  const absl::Status status = CheckDescriptorBudget(limits);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr(std::to_string(DescriptorsNeeded(limits))));
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::to_string(limit.rlim_cur)));
}

}  // namespace
}  // namespace kvtriage
