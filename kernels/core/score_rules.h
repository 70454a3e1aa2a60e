// What scoring is on every device: which inputs a scorer takes, and the steps that are left when a
// layer's scores are back on the host.
#ifndef KVTRIAGE_KERNELS_CORE_SCORE_RULES_H_
#define KVTRIAGE_KERNELS_CORE_SCORE_RULES_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Query rows that an input brings; 0 for column sums and for none.
uint32_t SuppliedRows(const AttentionInput& input);

// Rows of the window: the newest of those, no more than asked for, nor (without limits of their
// own) than there are cached rows.
uint32_t WindowRows(const ScoreRequest& request);

// POLICY_INVALID when the scorer cannot be computed from the source that the request brings,
// FIELD_MISSING without the projection that it reads.
absl::Status CheckScoreInputs(const ScoreRequest& request);

// kRecency and kRandom: the scores [N] of one KV head.
void ScoreByNumber(const ScoreRequest& request, uint64_t head, std::span<float> scores);

// Before pooling: every NaN among the scores is a bad row, or a NaN that came in.
void CountNonfinite(ScoreResult& result);

// Before pooling, kCritical: from the sum over the window's rows to their mean.
void AverageOverWindow(const ScoreRequest& request, ScoreResult& result);

// After pooling, kCritical: second_scores, n until then, become (a + epsilon) n.
void FinishCritical(const ScoreSpec& spec, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_SCORE_RULES_H_
