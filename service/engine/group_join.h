// Adds what ranks have summed over their own heads.
#ifndef KVTRIAGE_SERVICE_ENGINE_GROUP_JOIN_H_
#define KVTRIAGE_SERVICE_ENGINE_GROUP_JOIN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "service/policy/policy.h"

namespace kvtriage {

// What becomes of a KV head that several ranks hold. Where they hold it for the sake of different
// query heads, each has a part of its score.
enum class ReplicaRule : uint8_t {
  kAdd,   // sums over query heads
  kMean,  // means over query heads
  kOnce,  // of the rows alone: all ranks have the same numbers, the lowest counts
  kNone,  // not to be had from the parts (a maximum)
};
ReplicaRule ReplicaRuleOf(const PolicySpec& policy);

struct RankSums {
  uint32_t first_head = 0, heads = 0;     // of the rank, in the model
  ReplicaRule rule = ReplicaRule::kOnce;  // of all ranks alike
  std::vector<std::span<float>> arrays;   // of all ranks alike: as many, of the same sizes
};

// Whether the ranks' heads are those of the model: ranges that are equal or disjoint, and together
// all of [0, total). GROUP_MISMATCH (field "group.first_kv_head"); POLICY_INVALID (field "policy")
// where replicas cannot be joined.
absl::Status CheckRankHeads(std::span<const RankSums> ranks, uint32_t total);

// Every rank's arrays become the sum over the ranks, added in rank order in float32.
void JoinRanks(std::span<const RankSums> ranks);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_GROUP_JOIN_H_
