// CompressRequest: everything that the message alone tells. Pure; O(bytes of the message).
#ifndef KVTRIAGE_SERVICE_VALIDATE_COMPRESS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_COMPRESS_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"
#include "service/policy/named_policies.h"
#include "service/validate/limits.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in.
//
// Left to the planner, because it needs the cache or the regions: ids; layer numbers against the
// cache; table lengths and the block ids needed; duplicates and sharing; the number of PER_LAYER
// and PER_HEAD explicit lists; layers, heads and elems of the inputs; ranges inside regions;
// first_slot against block_slots; sizes of ledger and answer; whether views can be scored.
absl::StatusOr<CompressSpec> ParseCompress(const v1::CompressRequest& request, const Limits& limits,
                                           const PolicyDefaults& defaults);

// The same without the header; `spec` is as made.
absl::Status ParseCompressBody(const v1::CompressRequest& request, const Limits& limits,
                               const PolicyDefaults& defaults, CompressSpec& spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_COMPRESS_PROTO_H_
