// Scores without queries: from ready-made column sums, by age, or at random.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_SUMS_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_SUMS_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Scores and mass from AttentionSource::kColumnSums, before pooling.
void ScoreColumnSums(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

// Scorer::kRecency and kRandom; reads neither K nor V.
void ScoreWithoutCache(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_SUMS_H_
