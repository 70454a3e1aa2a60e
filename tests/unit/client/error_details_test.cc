#include "kvtriage/error_details.h"

#include "client/cpp/local_error.h"
#include "client/cpp/retry.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/types.pb.h"

namespace kvtriage::client {
namespace {

std::string Packed(const v1::ErrorDetail& detail) {
  v1::RpcStatus status;
  status.add_details()->PackFrom(detail);
  return status.SerializeAsString();
}

TEST(ErrorDetails, ServiceDetailsSurviveTheWay) {
  v1::ErrorDetail detail;
  detail.set_reason(v1::ERROR_REASON_BLOCK_OUT_OF_RANGE);
  detail.set_field("sequences[3].table");
  detail.set_index(7);
  detail.set_got(4096);
  detail.set_limit(2048);
  detail.set_retry_after_ms(11);
  detail.set_server_epoch(99);
  detail.set_cache_state(v1::CACHE_STATE_UNHARMED);
  detail.add_more_indices(8);
  const auto parsed = ParseRpcDetails(Packed(detail));
  ASSERT_TRUE(parsed.has_value());
  const auto got =
      GetErrorDetails(StatusWithDetails(absl::StatusCode::kOutOfRange, "text", *parsed));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->reason, "block_out_of_range");
  EXPECT_TRUE(got->from_service);
  EXPECT_TRUE(got->unharmed);
  EXPECT_EQ(got->field, "sequences[3].table");
  EXPECT_EQ(got->index, 7u);
  EXPECT_EQ(got->got, 4096u);
  EXPECT_EQ(got->limit, 2048u);
  EXPECT_EQ(got->retry_after_ms, 11u);
  EXPECT_EQ(got->server_epoch, 99u);
  EXPECT_EQ(got->more_indices, std::vector<uint64_t>{8});
}

// A state that is missing or unknown must never read as "unharmed".
TEST(ErrorDetails, OnlyTheWordUnharmedMeansUnharmed) {
  v1::ErrorDetail detail;
  detail.set_reason(v1::ERROR_REASON_INTERNAL);
  EXPECT_FALSE(ParseRpcDetails(Packed(detail))->unharmed);
  detail.set_cache_state(v1::CACHE_STATE_SEE_LEDGER);
  EXPECT_FALSE(ParseRpcDetails(Packed(detail))->unharmed);
  detail.set_cache_state(static_cast<v1::CacheState>(9));
  EXPECT_FALSE(ParseRpcDetails(Packed(detail))->unharmed);
}

TEST(ErrorDetails, ForeignAndGarbledDetailsAreNone) {
  EXPECT_FALSE(ParseRpcDetails("").has_value());
  EXPECT_FALSE(ParseRpcDetails("\xff\xff\xff garbage").has_value());
  v1::RpcStatus foreign;
  foreign.add_details()->PackFrom(v1::Timing());
  EXPECT_FALSE(ParseRpcDetails(foreign.SerializeAsString()).has_value());
  EXPECT_FALSE(GetErrorDetails(absl::InternalError("plain")).has_value());
}

TEST(ErrorDetails, WordsAreThoseOfTheService) {
  for (const ErrorReason reason : AllReasons()) {
    v1::ErrorDetail detail;
    detail.set_reason(static_cast<v1::ErrorReason>(reason));
    EXPECT_EQ(ParseRpcDetails(Packed(detail))->reason, ReasonName(reason));
  }
  v1::ErrorDetail newer;
  newer.set_reason(static_cast<v1::ErrorReason>(999));
  EXPECT_EQ(ParseRpcDetails(Packed(newer))->reason, "reason_999");
}

TEST(Retry, OnlyUnharmedRefusalsForLoadAreRepeated) {
  ErrorDetails details;
  details.reason = "queue_full";
  details.from_service = true;
  details.unharmed = true;
  details.retry_after_ms = 5;
  const auto pause = [&](absl::StatusCode code) {
    return RetryPause(StatusWithDetails(code, "", details));
  };
  EXPECT_EQ(pause(absl::StatusCode::kResourceExhausted), absl::Milliseconds(5));
  EXPECT_EQ(pause(absl::StatusCode::kUnavailable), absl::Milliseconds(5));
  EXPECT_FALSE(pause(absl::StatusCode::kFailedPrecondition).has_value());
  details.unharmed = false;
  EXPECT_FALSE(pause(absl::StatusCode::kUnavailable).has_value());
  details.unharmed = true;
  details.retry_after_ms = 0;
  EXPECT_FALSE(pause(absl::StatusCode::kResourceExhausted).has_value());
  EXPECT_FALSE(RetryPause(absl::UnavailableError("gRPC's own")).has_value());
}

TEST(Retry, StopsAfterThreeRepeatsAndAtTheDeadline) {
  ErrorDetails details;
  details.reason = "queue_full";
  details.from_service = details.unharmed = true;
  details.retry_after_ms = 1;
  int calls = 0;
  const auto refuse = [&] {
    ++calls;
    return StatusWithDetails(absl::StatusCode::kResourceExhausted, "", details);
  };
  EXPECT_FALSE(WithRetry(true, absl::Now() + absl::Seconds(60), refuse).ok());
  EXPECT_EQ(calls, 4);
  calls = 0;
  EXPECT_FALSE(WithRetry(false, absl::Now() + absl::Seconds(60), refuse).ok());
  EXPECT_EQ(calls, 1);
  calls = 0;
  details.retry_after_ms = 60000;
  EXPECT_FALSE(WithRetry(true, absl::Now() + absl::Milliseconds(100), refuse).ok());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace kvtriage::client
