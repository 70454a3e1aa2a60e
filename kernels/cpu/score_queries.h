// Scores from the rows of a window: queries, or their ready-made attention.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_QUERIES_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_QUERIES_H_

#include "absl/status/status.h"
#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Fills `result` but for pooling and nonfinite_tokens. Sources kQuery, kQueryOutput and kReady.
absl::Status ScoreQueries(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_QUERIES_H_
