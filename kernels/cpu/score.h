// The CPU scorer. Contract of the numbers: kvtriage/kernels/score.h.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_H_

#include "absl/status/status.h"
#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Scores one layer of one sequence with all threads of `team`. Overwrites `result`. Fails with
// NO_USABLE_ROW (index = KV head) when queries are given and none of a head can vote; `result` is
// then unspecified.
//
// Work memory is bounded whatever the number of tokens and window rows: rows are taken in batches,
// and as many KV heads at once as fit a fixed allowance (32 MiB, or one head). The calling thread
// keeps it for its next call.
absl::Status ScoreLayer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_H_
