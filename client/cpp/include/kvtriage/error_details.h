// What an error of a call says beside its code and text.
#ifndef KVTRIAGE_CLIENT_ERROR_DETAILS_H_
#define KVTRIAGE_CLIENT_ERROR_DETAILS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kvtriage::client {

struct ErrorDetails {
  // One word for logs and runbooks. From the service: the lower-case tail of its ErrorReason
  // ("block_out_of_range"). From this library: socket_missing, socket_denied, not_kvtriage,
  // fd_socket_missing, fd_socket_denied, fd_socket_silent, server_untrusted, not_attached, forked,
  // bad_argument, bad_answer, host_memory, ledger_slots_busy, session_not_quiet, cuda_call; for
  // device memory also the service's words no_device, device_memory, vmm_memory.
  std::string reason;
  bool from_service = false;
  std::string field;   // request path, e.g. "sequences[3].table"
  uint64_t index = 0;  // first bad entry
  uint64_t got = 0;
  uint64_t limit = 0;
  std::vector<uint64_t> more_indices;
  uint32_t retry_after_ms = 0;  // 0: do not repeat the same call
  bool unharmed = false;        // the service says: byte for byte as before the call
  uint64_t server_epoch = 0;
  uint64_t log_id = 0;  // find the service's log line with it
};

// Nothing for a status that neither the service nor this library made (gRPC's own, for one).
std::optional<ErrorDetails> GetErrorDetails(const absl::Status& status);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_ERROR_DETAILS_H_
