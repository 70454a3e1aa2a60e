// A compress request as a message.
#ifndef KVTRIAGE_CLIENT_CPP_COMPRESS_TO_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_COMPRESS_TO_PROTO_H_

#include <cstdint>
#include <optional>

#include "client/cpp/memory_ids.h"
#include "kvtriage/compress.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

// Without the header. `ledger_slot` is used by in-place calls.
v1::CompressRequest ToProto(const CompressRequest& request, uint32_t ledger_slot,
                            const MemoryIds& ids);

v1::ScoreInputs ToProto(const ScoreInputs& inputs, const MemoryIds& ids);
v1::Act ToProto(const Act& act, const std::optional<AngleMode>& renumber, uint32_t ledger_slot,
                const MemoryIds& ids);
v1::Output ToProto(LengthRule lengths, KeptFormat format);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_COMPRESS_TO_PROTO_H_
