// Expected Attention between and behind the passes over the cache: from the moments of a head's
// queries to the form that a device evaluates for every key, and from the logits to scores.
#ifndef KVTRIAGE_KERNELS_CORE_EXPECTED_RULES_H_
#define KVTRIAGE_KERNELS_CORE_EXPECTED_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/average_turn.h"

namespace kvtriage {

// Of the rows of one query head whose elements are all finite.
struct QueryMoments {
  uint64_t rows = 0,
           skipped = 0;      // rows that count, rows left out; nothing else is set when rows = 0
  std::vector<double> mean;  // [dk]
  std::vector<double> covariance;  // [dk][dk], divided by the number of rows
};

// Moments that came with the request count as one row, or as a row left out when they are not
// finite.
void CountGivenMoments(QueryMoments& moments);

// NO_USABLE_ROW (index = KV head) when no query head of a KV head has moments. `usable` is [Hq],
// the heads of a group side by side.
absl::Status CheckUsable(std::span<const uint8_t> usable, uint32_t group);

// The logit of k is linear.k + k^T quadratic k, scale included.
struct ExpectedForm {
  std::vector<float> linear;     // [dk]
  std::vector<float> quadratic;  // [dk][dk]
};

// Turns the moments in place on the way.
ExpectedForm FormOf(QueryMoments& moments, const AverageTurn& turn, double scale);

// Logits of one query head into weights, from row `first` on; 0 where `norms` says that a row is
// bad (NaN).
void ExpectedSoftmax(std::span<const float> norms, uint64_t first, std::span<float> logits);

// Scores of one KV head: (mean weight over the group + epsilon) |v|, 0 before `first`, NaN for bad
// rows. `weights` are those of the group's usable heads, `norms` |v|.
void ExpectedScores(std::span<const std::span<const float>> weights, std::span<const float> norms,
                    uint64_t first, uint32_t group, double epsilon, std::span<float> scores);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_EXPECTED_RULES_H_
