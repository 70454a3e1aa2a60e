// Observe and Rewind as messages, and their answers checked against the requests.
#ifndef KVTRIAGE_CLIENT_CPP_OBSERVE_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_OBSERVE_PROTO_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/memory_ids.h"
#include "kvtriage/observe.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

// Whether the call may write in place: then it needs a ledger slot.
bool WritesInPlace(const ObserveRequest& request);

// Without the header. Where no step may evict there is no act, and no slot is taken.
v1::ObserveRequest ToProto(const ObserveRequest& request, uint32_t ledger_slot,
                           const MemoryIds& ids);

// `heads` are the KV heads of each layer of the cache. INTERNAL when the answer does not fit the
// request.
absl::StatusOr<ObserveResult> FromProto(const v1::ObserveResponse& response,
                                        const ObserveRequest& request,
                                        const std::vector<uint32_t>& heads);

v1::RewindRequest ToProto(const RewindRequest& request);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_OBSERVE_PROTO_H_
