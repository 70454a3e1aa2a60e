// Scores from the keys alone: their norms, and how far they point away from their mean.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_KEYS_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_KEYS_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// kKeyNorm and kKeyDiff. Fills `result` but for pooling and nonfinite_tokens.
void ScoreKeys(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_KEYS_H_
