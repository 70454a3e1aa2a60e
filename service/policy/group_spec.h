// Ranks that decide together (tensor parallelism): each holds some KV heads of one model, and sets
// that heads share must be the same on all of them.
#ifndef KVTRIAGE_SERVICE_POLICY_GROUP_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_GROUP_SPEC_H_

#include <array>
#include <cstdint>

namespace kvtriage {

using GroupKey = std::array<uint8_t, 16>;

struct GroupSpec {
  GroupKey key{};               // equal on all ranks, new for each call
  uint32_t rank = 0, size = 1;  // rank < size
  uint32_t first_kv_head = 0;   // of this rank, in the model
  uint32_t total_kv_heads = 1;  // of the model; one that several ranks hold counts once
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_GROUP_SPEC_H_
