#include "service/rpc/error_status.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/types.pb.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kEpoch = 0x1122334455667788;

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::RpcStatus details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  v1::ErrorDetail detail;
  EXPECT_EQ(details.details_size(), 1);
  if (details.details_size() == 1) {
    EXPECT_TRUE(details.details(0).UnpackTo(&detail));
  }
  return detail;
}

TEST(ErrorStatus, OkIsOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus(), kEpoch, 1).ok()); }

// One row per case of the error table.
TEST(ErrorStatus, EveryReasonHasItsCodeOnTheWire) {
  const std::set<std::string> by_code[] = {
      {},
      {"key_dead"},
      {},
      {"field_missing",       "field_invalid",    "enum_unspecified",  "geometry_overflow",
       "geometry_invalid",    "too_many",         "view_overlap",      "view_not_nested",
       "block_duplicate",     "table_too_short",  "index_invalid",     "policy_unknown",
       "policy_invalid",      "lengths_unequal",  "budget_too_small",  "no_usable_row",
       "result_too_large",    "ledger_too_small", "deadline_too_long", "ticket_unknown",
       "destination_overlap", "handle_malformed", "mixed_memory"},
      {"region_retiring", "deadline_unmeetable"},
      {"memory_unknown", "sequence_unknown"},
      {"key_reused"},
      {},
      {"quota_bytes", "session_limit", "queue_full", "session_busy", "quota_state",
       "device_memory"},
      {"stage_mismatch",   "region_not_sealed",    "fd_wrong_type",     "fd_too_small",
       "map_failed",       "fingerprint_mismatch", "region_read_only",  "session_not_bound",
       "api_revision",     "sequence_stale",       "block_shared",      "destination_too_small",
       "ledger_slot_busy", "result_expired",       "layer_not_movable", "positions_unknown",
       "rewind_too_far",   "draft_pending",        "gpu_not_visible",   "pid_collision",
       "vmm_memory",       "peer_unsupported",     "stale_generation",  "mig_unsupported",
       "handle_in_use"},
      {"session_ended", "sequence_released", "group_mismatch"},
      {"block_out_of_range", "index_out_of_range", "range_out_of_region"},
      {"unsupported", "rope_unsupported"},
      {"internal"},
      {"draining", "device_sick", "device_lost", "no_device"},
      {"move_failed"},
      {"session_unknown"},
  };
  for (const ErrorReason reason : AllReasons()) {
    const std::string name(ReasonName(reason));
    const grpc::Status status = ToGrpcStatus(Error(reason, "field", "text"), kEpoch, 7);
    const auto code = static_cast<size_t>(status.error_code());
    ASSERT_LT(code, std::size(by_code)) << name;
    EXPECT_TRUE(by_code[code].contains(name)) << name << " went out with code " << code;
    EXPECT_EQ(DetailOf(status).reason(), static_cast<v1::ErrorReason>(reason)) << name;
  }
}

TEST(ErrorStatus, CarriesEveryDetail) {
  const absl::Status error =
      Error(ErrorReason::kBlockShared, "sequences[3].table", "block is shared")
          .Index(7)
          .Got(4096)
          .Limit(2048)
          .RetryAfterMs(15)
          .State(CacheState::kSeeLedger)
          .MoreIndices({8, 9});
  const grpc::Status status = ToGrpcStatus(error, kEpoch, 42);
  const v1::ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.field(), "sequences[3].table");
  EXPECT_EQ(detail.index(), 7u);
  EXPECT_EQ(detail.got(), 4096u);
  EXPECT_EQ(detail.limit(), 2048u);
  EXPECT_EQ(detail.retry_after_ms(), 15u);
  EXPECT_EQ(detail.server_epoch(), kEpoch);
  EXPECT_EQ(detail.log_id(), 42u);
  EXPECT_EQ(detail.cache_state(), v1::CACHE_STATE_SEE_LEDGER);
  EXPECT_EQ(detail.more_indices_size(), 2);
  EXPECT_THAT(status.error_message(), HasSubstr("sequences[3].table"));
  EXPECT_THAT(status.error_message(), HasSubstr("block is shared"));
}

TEST(ErrorStatus, UnharmedUnlessSaidOtherwise) {
  EXPECT_EQ(DetailOf(ToGrpcStatus(Error(ErrorReason::kTooMany, "f", "t"), kEpoch, 1)).cache_state(),
            v1::CACHE_STATE_UNHARMED);
}

TEST(ErrorStatus, StaysWithinItsBounds) {
  std::vector<uint64_t> indices(100, UINT64_MAX);
  const absl::Status error =
      Error(ErrorReason::kBlockOutOfRange, std::string(5'000, 'f'), std::string(5'000, 't'))
          .Index(UINT64_MAX)
          .Got(UINT64_MAX)
          .Limit(UINT64_MAX)
          .MoreIndices(indices);
  const grpc::Status status = ToGrpcStatus(error, UINT64_MAX, UINT64_MAX);
  EXPECT_LE(status.error_message().size(), kMaxErrorTextBytes);
  const v1::ErrorDetail detail = DetailOf(status);
  EXPECT_LE(detail.ByteSizeLong(), kMaxErrorDetailBytes);
  EXPECT_LE(detail.more_indices_size(), static_cast<int>(kMaxErrorIndices));
}

// What is not one of our errors is our bug; its text may hold anything.
// https://github.com/triton-inference-server/server/pull/8269
TEST(ErrorStatus, ForeignStatusBecomesInternalWithoutItsText) {
  for (const absl::Status& foreign :
       {absl::UnknownError("canary /secret/path 0x7f00dead"), absl::NotFoundError("canary"),
        absl::CancelledError("canary")}) {
    const grpc::Status status = ToGrpcStatus(foreign, kEpoch, 99);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_THAT(status.error_message(), Not(HasSubstr("canary")));
    EXPECT_THAT(status.error_message(), HasSubstr("99")) << "the log line can be found";
    EXPECT_THAT(status.error_details(), Not(HasSubstr("canary")));
    EXPECT_EQ(DetailOf(status).reason(), v1::ERROR_REASON_INTERNAL);
  }
}

TEST(ErrorStatus, EpochIsLittleEndian) {
  EXPECT_EQ(EpochBytes(kEpoch), std::string("\x88\x77\x66\x55\x44\x33\x22\x11", 8));
}

}  // namespace
}  // namespace kvtriage
