#include "service/validate/session_proto.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

bool IsClientChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '/' || c == '-';
}

// The name is logged, so nothing that could break or forge a log line gets through.
absl::Status CheckClient(const std::string& client) {
  if (client.empty()) return Missing("hello.client");
  if (client.size() > kMaxClientNameBytes) {
    return Error(ErrorReason::kFieldInvalid, "hello.client", "name too long")
        .Got(client.size())
        .Limit(kMaxClientNameBytes);
  }
  if (!std::all_of(client.begin(), client.end(), IsClientChar)) {
    return Invalid("hello.client", "characters outside [A-Za-z0-9._/-]");
  }
  return absl::OkStatus();
}

absl::Status CheckRevisions(const v1::AttachRequest::Hello& hello) {
  if (hello.min_api_revision() > hello.max_api_revision()) {
    return Error(ErrorReason::kFieldInvalid, "hello.min_api_revision", "above max_api_revision")
        .Got(hello.min_api_revision())
        .Limit(hello.max_api_revision());
  }
  if (hello.min_api_revision() > kApiRevision || hello.max_api_revision() < kApiRevision) {
    const bool newer = hello.min_api_revision() > kApiRevision;
    return Error(ErrorReason::kApiRevision,
                 newer ? "hello.min_api_revision" : "hello.max_api_revision",
                 "the client's API revisions do not include ours")
        .Got(newer ? hello.min_api_revision() : hello.max_api_revision())
        .Limit(kApiRevision);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HelloSpec> ParseHello(const v1::AttachRequest& request) {
  if (!request.has_hello()) return Invalid("hello", "the first message must be a Hello");
  const v1::AttachRequest::Hello& hello = request.hello();
  KVTRIAGE_RETURN_IF_ERROR(CheckRevisions(hello));
  KVTRIAGE_RETURN_IF_ERROR(CheckClient(hello.client()));
  const bool ranked = hello.rank() != 0 || hello.world_size() != 0;
  if (ranked && hello.rank() >= hello.world_size()) {
    return Error(ErrorReason::kFieldInvalid, "hello.rank", "rank is not below world_size")
        .Got(hello.rank())
        .Limit(hello.world_size());
  }
  return HelloSpec{kApiRevision, hello.client(), hello.rank(), hello.world_size()};
}

}  // namespace kvtriage
