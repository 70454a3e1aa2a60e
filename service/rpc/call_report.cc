#include "service/rpc/call_report.h"

#include <algorithm>
#include <cctype>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "service/observe/catalogue.h"

namespace kvtriage {
namespace {

bool IsLowerHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

LogLine LineOf(const CallReport& report, const absl::Status& status, uint64_t log_id) {
  const bool failed = !status.ok();
  LogLine line(failed ? LogLevel::kInfo : LogLevel::kDebug, "rpc");
  line.Add("method", RpcMethodName(report.method));
  line.Add("code", catalogue::kCodeValues[static_cast<size_t>(status.code())]);
  if (report.session_id != 0) line.AddHex("session", report.session_id);
  if (report.job_id != 0) line.Add("job", report.job_id);
  line.Add("log_id", log_id);
  return line;
}

}  // namespace

uint64_t ReportCall(RpcCore& core, const CallReport& report, const absl::Status& status) {
  const uint64_t log_id = core.last_log_id.fetch_add(1, std::memory_order_relaxed) + 1;
  const absl::Duration took = absl::Now() - report.begin;
  RpcOutcome outcome;
  outcome.code = status.code();
  outcome.seconds = absl::ToDoubleSeconds(took);
  if (const std::optional<ErrorInfo> info = GetErrorInfo(status); info.has_value()) {
    outcome.reason = info->reason;
  }
  core.metrics.OnRpc(report.method, outcome);
  if (!core.log.Enabled(status.ok() ? LogLevel::kDebug : LogLevel::kInfo)) return log_id;
  LogLine line = LineOf(report, status, log_id);
  line.Add("us", static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(took))));
  if (!report.trace_id.empty()) line.Add("trace_id", report.trace_id);
  if (!status.ok()) {
    // Our own words and numbers only: kernels/core/error.h.
    const absl::string_view text = status.message();
    line.Add("text", std::string_view(text.data(), text.size()));
    line.LimitAs(catalogue::kCodeValues[static_cast<size_t>(status.code())]);
    if (outcome.reason.has_value()) line.Reason(*outcome.reason);
  }
  core.log.Write(std::move(line));
  return log_id;
}

std::string TraceIdOf(std::string_view traceparent) {
  // version (2) - trace id (32) - parent id (16) - flags (2)
  constexpr size_t kLength = 55, kIdBegin = 3, kIdLength = 32;
  if (traceparent.size() != kLength || traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-') {
    return "";
  }
  const std::string_view id = traceparent.substr(kIdBegin, kIdLength);
  return std::all_of(id.begin(), id.end(), IsLowerHex) ? std::string(id) : "";
}

}  // namespace kvtriage
