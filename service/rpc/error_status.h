// The only place where an absl::Status becomes what a client sees.
#ifndef KVTRIAGE_SERVICE_RPC_ERROR_STATUS_H_
#define KVTRIAGE_SERVICE_RPC_ERROR_STATUS_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace kvtriage {

inline constexpr char kEpochMetadata[] = "kvtriage-epoch-bin";
inline constexpr char kSessionMetadata[] = "kvtriage-session-bin";

// Code, a text of at most 512 bytes, and RpcStatus with one ErrorDetail (at most 1 KiB) as the
// details. A status that is not one of our errors is our bug: INTERNAL with a fixed text and the
// log id, its own text stays in the log.
grpc::Status ToGrpcStatus(const absl::Status& status, uint64_t epoch, uint64_t log_id);

// The error that ToGrpcStatus reports: `status`, or INTERNAL for what is not one of our errors.
absl::Status OwnError(const absl::Status& status);

std::string EpochBytes(uint64_t epoch);  // 8 bytes, little-endian

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_ERROR_STATUS_H_
