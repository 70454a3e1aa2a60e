// Errors with ErrorDetails attached: the ones this library makes, and the ones the service sent.
#ifndef KVTRIAGE_CLIENT_CPP_LOCAL_ERROR_H_
#define KVTRIAGE_CLIENT_CPP_LOCAL_ERROR_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "kvtriage/error_details.h"

namespace kvtriage::client {

// An error of our own making: nothing was sent, or nothing came of it, so `unharmed` is set.
absl::Status LocalError(absl::StatusCode code, std::string_view reason, std::string_view text);

// A status that carries `details`.
absl::Status StatusWithDetails(absl::StatusCode code, std::string_view text,
                               const ErrorDetails& details);

// What the service put into grpc-status-details-bin (a serialized RpcStatus). Nothing when it is
// not one of its errors.
std::optional<ErrorDetails> ParseRpcDetails(std::string_view serialized);

// A refusal by number (ErrorReason), as the fd socket sends it.
absl::Status ServiceRefusal(uint32_t reason, uint64_t index, std::string_view text);

// Whether `status` came from the service and has this reason word.
bool HasReason(const absl::Status& status, std::string_view reason);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LOCAL_ERROR_H_
