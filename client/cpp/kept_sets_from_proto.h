// Kept sets of an answer, whatever format they travel in.
#ifndef KVTRIAGE_CLIENT_CPP_KEPT_SETS_FROM_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_KEPT_SETS_FROM_PROTO_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/compress.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

// `rows` were in the cache when the call began; `heads` are the KV heads of each layer of the call.
// INTERNAL when the answer is not in `format`, or does not agree with itself.
absl::StatusOr<KeptSets> KeptSetsFrom(const v1::KeptSets& from, KeptFormat format, uint64_t rows,
                                      const std::vector<uint32_t>& heads);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_KEPT_SETS_FROM_PROTO_H_
