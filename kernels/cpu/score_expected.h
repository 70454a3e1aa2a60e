// Expected Attention: what the queries to come will probably look at.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_EXPECTED_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_EXPECTED_H_

#include "absl/status/status.h"
#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// kExpectedAttention. Fills `result` but for nonfinite_tokens. input.query_mean and
// query_covariance, or input.q with a query of every row, all from before RoPE. NO_USABLE_ROW
// (index = KV head) when no query head of a KV head has finite ones.
absl::Status ScoreExpected(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_EXPECTED_H_
