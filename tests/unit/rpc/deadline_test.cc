#include "service/rpc/deadline.h"

#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

constexpr absl::Duration kUsual = absl::Seconds(30);

TEST(Deadline, NoneMeansTheUsualOne) {
  const absl::Time now = absl::FromUnixSeconds(1'000);
  EXPECT_EQ(DeadlineOf(now, absl::InfiniteFuture(), kUsual).value(), now + absl::Seconds(30));
  EXPECT_EQ(DeadlineOf(now, absl::InfiniteFuture(), absl::Seconds(10)).value(),
            now + absl::Seconds(10));
}

TEST(Deadline, AtMostTwoMinutes) {
  const absl::Time now = absl::FromUnixSeconds(1'000);
  EXPECT_EQ(DeadlineOf(now, now + absl::Seconds(120), kUsual).value(), now + absl::Seconds(120));
  const auto late = DeadlineOf(now, now + absl::Seconds(130), kUsual);
  EXPECT_EQ(ReasonOf(late.status()), "deadline_too_long");
  EXPECT_EQ(late.status().code(), absl::StatusCode::kInvalidArgument);
  const auto info = GetErrorInfo(late.status());
  EXPECT_EQ(info->got, 130'000u);
  EXPECT_EQ(info->limit, 120'000u);
}

TEST(Deadline, APassedOneIsTheCallersBusiness) {
  const absl::Time now = absl::FromUnixSeconds(1'000);
  EXPECT_EQ(DeadlineOf(now, now - absl::Seconds(1), kUsual).value(), now - absl::Seconds(1));
}

}  // namespace
}  // namespace kvtriage
