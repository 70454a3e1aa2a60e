// The scoring and selecting half of a triage.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_SCORE_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_SCORE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/kernels/backend.h"
#include "service/engine/triage_halves.h"

namespace kvtriage {

// One result per layer, from one call of the backend.
absl::Status ScoreLayers(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                         const ListLayout& lists, const KeepPlan& plan, const StopCheck& stop,
                         std::vector<ScoreResult>& scores);

// One array for every list that heads share: the sum over their scores in ascending layer and head
// order. Empty for kPerHead.
std::vector<std::vector<float>> ShareScores(Granularity granularity, uint32_t rows,
                                            std::span<const ScoreResult> scores);

// Fills result.kept, numbered by `scored.lists`, and the sizes of the layers' two stages.
absl::Status SelectRows(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                        const ScoredSequence& scored, TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_SCORE_H_
