#include "service/engine/group_join.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

// Per rank, what its numbers are divided by; 0: a lower rank has said the same.
std::vector<float> DivisorsOf(std::span<const RankSums> ranks) {
  std::vector<float> divisors;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto same_heads = [&](const RankSums& other) {
      return other.first_head == ranks[rank].first_head;
    };
    const bool first =
        std::none_of(ranks.begin(), ranks.begin() + static_cast<int64_t>(rank), same_heads);
    switch (ranks[rank].rule) {
      case ReplicaRule::kMean:
        divisors.push_back(
            static_cast<float>(std::count_if(ranks.begin(), ranks.end(), same_heads)));
        break;
      case ReplicaRule::kOnce:
        divisors.push_back(first ? 1.0f : 0.0f);
        break;
      case ReplicaRule::kAdd:
      case ReplicaRule::kNone:
        divisors.push_back(1.0f);
        break;
    }
  }
  return divisors;
}

void JoinArray(std::span<const RankSums> ranks, std::span<const float> divisors, size_t array) {
  const std::span<float> sum = ranks.front().arrays[array];
  for (size_t p = 0; p < sum.size(); ++p) {
    // Rank 0 is always the first of its replicas.
    float total = ranks.front().arrays[array][p] / divisors.front();
    for (size_t rank = 1; rank < ranks.size(); ++rank) {
      if (divisors[rank] > 0) total += ranks[rank].arrays[array][p] / divisors[rank];
    }
    sum[p] = total;
  }
  for (const RankSums& rank : ranks.subspan(1)) {
    std::copy(sum.begin(), sum.end(), rank.arrays[array].begin());
  }
}

}  // namespace

ReplicaRule ReplicaRuleOf(const PolicySpec& policy) {
  const Scorer scorer = policy.score.scorer;
  if (!UsesQueries(scorer) && !UsesReduce(scorer)) return ReplicaRule::kOnce;
  if (policy.score.pool == Pool::kMax) return ReplicaRule::kNone;
  if (policy.score.reduce == Reduce::kSum) return ReplicaRule::kAdd;
  return policy.score.reduce == Reduce::kMean ? ReplicaRule::kMean : ReplicaRule::kNone;
}

absl::Status CheckRankHeads(std::span<const RankSums> ranks, uint32_t total) {
  std::vector<bool> covered(total);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankSums& mine = ranks[rank];
    bool replica = false;
    for (const RankSums& other : ranks.first(rank)) {
      const bool apart = mine.first_head >= other.first_head + other.heads ||
                         other.first_head >= mine.first_head + mine.heads;
      const bool same = mine.first_head == other.first_head && mine.heads == other.heads;
      if (!apart && !same) {
        return Error(ErrorReason::kGroupMismatch, "group.first_kv_head",
                     "two ranks hold some heads together and others not")
            .Index(rank)
            .Got(mine.first_head)
            .Limit(other.first_head);
      }
      replica = replica || same;
    }
    if (replica && mine.rule == ReplicaRule::kNone) {
      return Error(ErrorReason::kPolicyInvalid, "policy",
                   "a maximum, or a score of averages, cannot be joined for a head of two ranks");
    }
    std::fill_n(covered.begin() + mine.first_head, mine.heads, true);
  }
  const auto missing = std::find(covered.begin(), covered.end(), false);
  if (missing == covered.end()) return absl::OkStatus();
  return Error(ErrorReason::kGroupMismatch, "group.first_kv_head", "no rank holds a head")
      .Index(static_cast<uint64_t>(missing - covered.begin()))
      .Limit(total);
}

void JoinRanks(std::span<const RankSums> ranks) {
  const std::vector<float> divisors = DivisorsOf(ranks);
  for (size_t array = 0; array < ranks.front().arrays.size(); ++array) {
    JoinArray(ranks, divisors, array);
  }
}

}  // namespace kvtriage
