#include "kvtriage/error_details.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>

#include "absl/strings/cord.h"
#include "client/cpp/local_error.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/types.pb.h"

namespace kvtriage::client {
namespace {

constexpr char kPayloadUrl[] = "kvtriage/client-error";

std::string WordOf(v1::ErrorReason reason) {
  std::string name = v1::ErrorReason_Name(reason);
  if (name.empty())
    return "reason_" + std::to_string(static_cast<int>(reason));  // newer than we are
  constexpr std::string_view kPrefix = "ERROR_REASON_";
  name.erase(0, kPrefix.size());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

// The payload is words with spaces between them, the field last: readable where a status is
// printed.
std::string Encode(const ErrorDetails& details) {
  std::ostringstream out;
  out << (details.reason.empty() ? "-" : details.reason)
      << (details.from_service ? " service" : " client")
      << (details.unharmed ? " unharmed " : " harm-unknown ") << details.index << ' ' << details.got
      << ' ' << details.limit << ' ' << details.retry_after_ms << ' ' << details.server_epoch << ' '
      << details.log_id << ' ' << details.more_indices.size();
  for (const uint64_t index : details.more_indices) out << ' ' << index;
  out << ' ' << details.field;
  return out.str();
}

ErrorDetails Decode(const std::string& text) {
  ErrorDetails details;
  std::istringstream in(text);
  std::string origin, harm;
  size_t more = 0;
  in >> details.reason >> origin >> harm >> details.index >> details.got >> details.limit >>
      details.retry_after_ms >> details.server_epoch >> details.log_id >> more;
  if (details.reason == "-") details.reason.clear();
  details.from_service = origin == "service";
  details.unharmed = harm == "unharmed";
  details.more_indices.resize(more);
  for (uint64_t& index : details.more_indices) in >> index;
  in.ignore(1);
  std::getline(in, details.field);
  return details;
}

ErrorDetails FromProto(const v1::ErrorDetail& detail) {
  ErrorDetails out;
  out.field = detail.field();
  out.index = detail.index();
  out.got = detail.got();
  out.limit = detail.limit();
  out.retry_after_ms = detail.retry_after_ms();
  out.server_epoch = detail.server_epoch();
  out.log_id = detail.log_id();
  out.unharmed = detail.cache_state() == v1::CACHE_STATE_UNHARMED;
  out.more_indices.assign(detail.more_indices().begin(), detail.more_indices().end());
  return out;
}

}  // namespace

absl::Status StatusWithDetails(absl::StatusCode code, std::string_view text,
                               const ErrorDetails& details) {
  absl::Status status(code, absl::string_view(text.data(), text.size()));
  status.SetPayload(kPayloadUrl, absl::Cord(Encode(details)));
  return status;
}

absl::Status LocalError(absl::StatusCode code, std::string_view reason, std::string_view text) {
  ErrorDetails details;
  details.reason = reason;
  details.unharmed = true;
  return StatusWithDetails(code, text, details);
}

std::optional<ErrorDetails> ParseRpcDetails(std::string_view serialized) {
  v1::RpcStatus status;
  if (!status.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())))
    return std::nullopt;
  for (const google::protobuf::Any& any : status.details()) {
    v1::ErrorDetail detail;
    if (!any.Is<v1::ErrorDetail>() || !any.UnpackTo(&detail)) continue;
    ErrorDetails out = FromProto(detail);
    out.reason = WordOf(detail.reason());
    out.from_service = true;
    return out;
  }
  return std::nullopt;
}

std::optional<ErrorDetails> GetErrorDetails(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  return Decode(std::string(*payload));
}

absl::Status ServiceRefusal(uint32_t reason, uint64_t index, std::string_view text) {
  ErrorDetails details;
  details.reason = WordOf(static_cast<v1::ErrorReason>(reason));
  details.from_service = true;
  details.unharmed = true;
  details.index = index;
  const std::string full = std::string(text) + ": " + details.reason;
  return StatusWithDetails(CodeOf(static_cast<ErrorReason>(reason)), full, details);
}

bool HasReason(const absl::Status& status, std::string_view reason) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  return details.has_value() && details->from_service && details->reason == reason;
}

}  // namespace kvtriage::client
