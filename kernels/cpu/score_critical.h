// CriticalKV: attention decides first, then attention times what a value adds to the block's
// output.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_CRITICAL_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_CRITICAL_H_

#include "absl/status/status.h"
#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// kCritical. Fills `result` but for pooling and nonfinite_tokens; second_scores hold n until
// FinishCritical (kernels/core/score_rules.h). Sources as for ScoreQueries.
absl::Status ScoreCritical(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_CRITICAL_H_
