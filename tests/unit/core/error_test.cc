#include "kernels/core/error.h"

#include "gtest/gtest.h"

namespace kvtriage {
namespace {

TEST(Error, CarriesItsDetails) {
  const absl::Status status = Error(ErrorReason::kBlockOutOfRange, "table", "block id out of range")
                                  .Index(7)
                                  .Got(4096)
                                  .Limit(2048)
                                  .RetryAfterMs(5)
                                  .MoreIndices({8, 9});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "block id out of range, index 7, got 4096, limit 2048");
  const auto info = GetErrorInfo(WithFieldPrefix(status, "sequences[3]."));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->field, "sequences[3].table");
  EXPECT_EQ(info->index, 7u);
  EXPECT_EQ(info->got, 4096u);
  EXPECT_EQ(info->limit, 2048u);
  EXPECT_EQ(info->retry_after_ms, 5u);
  EXPECT_EQ(info->more_indices, (std::vector<uint64_t>{8, 9}));
  EXPECT_EQ(info->cache_state, CacheState::kUnharmed);
  EXPECT_EQ(GetErrorInfo(WithCacheState(status, CacheState::kSeeLedger))->cache_state,
            CacheState::kSeeLedger);
}

TEST(Error, StatusFromElsewhereHasNone) {
  EXPECT_FALSE(GetErrorInfo(absl::InternalError("x")).has_value());
  EXPECT_FALSE(GetErrorInfo(absl::OkStatus()).has_value());
}

TEST(Error, EveryReasonHasANameAndACode) {
  for (const ErrorReason reason : AllReasons()) {
    EXPECT_NE(ReasonName(reason), "unspecified");
    EXPECT_NE(CodeOf(reason), absl::StatusCode::kUnknown);
    EXPECT_NE(CodeOf(reason), absl::StatusCode::kOk);
  }
}

}  // namespace
}  // namespace kvtriage
