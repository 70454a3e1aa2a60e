#include "service/rpc/error_status.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/types.pb.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

constexpr size_t kMaxFieldBytes = 256;

v1::ErrorDetail DetailOf(const ErrorInfo& info, uint64_t epoch, uint64_t log_id) {
  v1::ErrorDetail detail;
  detail.set_reason(static_cast<v1::ErrorReason>(info.reason));
  detail.set_field(info.field.substr(0, kMaxFieldBytes));
  detail.set_index(info.index);
  detail.set_got(info.got);
  detail.set_limit(info.limit);
  detail.set_retry_after_ms(info.retry_after_ms);
  detail.set_server_epoch(epoch);
  detail.set_log_id(log_id);
  detail.set_cache_state(info.cache_state == CacheState::kSeeLedger ? v1::CACHE_STATE_SEE_LEDGER
                                                                    : v1::CACHE_STATE_UNHARMED);
  for (const uint64_t index : info.more_indices) {
    if (detail.more_indices_size() == static_cast<int>(kMaxErrorIndices)) break;
    detail.add_more_indices(index);
  }
  return detail;
}

}  // namespace

absl::Status OwnError(const absl::Status& status) {
  if (status.ok() || GetErrorInfo(status).has_value()) return status;
  return Error(ErrorReason::kInternal, "", "internal error");
}

grpc::Status ToGrpcStatus(const absl::Status& status, uint64_t epoch, uint64_t log_id) {
  if (status.ok()) return grpc::Status::OK;
  const absl::Status own = OwnError(status);
  const ErrorInfo info = *GetErrorInfo(own);
  std::string text = absl::StrCat(own.message());
  if (info.reason == ErrorReason::kInternal) text = absl::StrCat("internal error, log id ", log_id);
  if (!info.field.empty()) text = absl::StrCat(info.field.substr(0, kMaxFieldBytes), ": ", text);
  if (text.size() > kMaxErrorTextBytes) text.resize(kMaxErrorTextBytes);

  v1::RpcStatus details;
  details.set_code(static_cast<int32_t>(own.code()));
  details.set_message(text);
  details.add_details()->PackFrom(DetailOf(info, epoch, log_id));
  return grpc::Status(static_cast<grpc::StatusCode>(own.code()), text, details.SerializeAsString());
}

std::string EpochBytes(uint64_t epoch) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>((epoch >> shift) & 0xff);
  return bytes;
}

}  // namespace kvtriage
