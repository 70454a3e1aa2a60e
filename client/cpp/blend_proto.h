// Rerotate and Fuse requests as messages.
#ifndef KVTRIAGE_CLIENT_CPP_BLEND_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_BLEND_PROTO_H_

#include <cstdint>

#include "client/cpp/memory_ids.h"
#include "kvtriage/blend.h"
#include "kvtriage/v1/blend.pb.h"

namespace kvtriage::client {

// Without the header. `ledger_slot` is used by in-place calls.
v1::RerotateRequest ToProto(const RerotateRequest& request, uint32_t ledger_slot,
                            const MemoryIds& ids);
v1::FuseRequest ToProto(const FuseRequest& request, uint32_t ledger_slot, const MemoryIds& ids);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_BLEND_PROTO_H_
