// HKVD requests and answers as messages.
#ifndef KVTRIAGE_CLIENT_CPP_RECOMPUTE_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_RECOMPUTE_PROTO_H_

#include "absl/status/statusor.h"
#include "client/cpp/memory_ids.h"
#include "kvtriage/recompute.h"
#include "kvtriage/v1/blend.pb.h"

namespace kvtriage::client {

// Without the header.
v1::SelectRecomputeRequest ToProto(const RecomputeRequest& request, const MemoryIds& ids);
absl::StatusOr<RecomputeResult> FromProto(const v1::SelectRecomputeResponse& response);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_RECOMPUTE_PROTO_H_
