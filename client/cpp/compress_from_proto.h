// A compress answer, checked against its request.
#ifndef KVTRIAGE_CLIENT_CPP_COMPRESS_FROM_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_COMPRESS_FROM_PROTO_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/compress.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

// `heads` are the KV heads of each layer of the call. INTERNAL when the answer does not fit the
// request.
absl::StatusOr<CompressResult> FromProto(const v1::CompressResponse& response,
                                         const CompressRequest& request,
                                         std::vector<uint32_t> heads);

// The result of one sequence that was given as `sequence`.
absl::StatusOr<SequenceResult> FromProto(const v1::SequenceResult& from, const Sequence& sequence,
                                         const Act& act, KeptFormat format,
                                         const std::vector<uint32_t>& heads);

Timing FromProto(const v1::Timing& timing);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_COMPRESS_FROM_PROTO_H_
