// LagKV: rows ranked by how much their channels spread, measured with the rows that follow them.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_LAGKV_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_LAGKV_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// kLagKv. Fills `result` but for pooling and nonfinite_tokens.
void ScoreLagKv(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_LAGKV_H_
