// What is counted and logged when a call ends. No gRPC.
#ifndef KVTRIAGE_SERVICE_RPC_CALL_REPORT_H_
#define KVTRIAGE_SERVICE_RPC_CALL_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/rpc/rpc_core.h"

namespace kvtriage {

struct CallReport {
  RpcMethod method = RpcMethod::kAttach;
  absl::Time begin;
  uint64_t session_id = 0;  // 0: none
  uint64_t job_id = 0;      // 0: none
  std::string trace_id;     // 32 hex digits, or empty
};

// One line per call (INFO when it failed, else DEBUG) and its metrics. Returns the log id that the
// client gets.
uint64_t ReportCall(RpcCore& core, const CallReport& report, const absl::Status& status);

// The trace id of a W3C `traceparent` header; empty unless the header is well-formed.
std::string TraceIdOf(std::string_view traceparent);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_CALL_REPORT_H_
