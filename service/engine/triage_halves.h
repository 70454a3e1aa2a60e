// The two halves of TriageOne: for calls that meet others between scoring and selecting.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_HALVES_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_HALVES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/kernels/backend.h"
#include "service/engine/triage_budget.h"
#include "service/engine/triage_lists.h"

namespace kvtriage {

// A sequence that is scored and not yet selected. A noop has no scores.
struct ScoredSequence {
  ListLayout lists;
  KeepPlan plan;
  std::vector<ScoreResult> scores;  // per layer
  // The scores of lists that heads share, one [N] per list: sums over `scores`, in ascending layer
  // and head order. Empty when every head has a list of its own. Selection reads these.
  std::vector<std::vector<float>> shared;
};

// `result` starts anew and gets its layers, its time of scoring and, for a noop, its lists.
absl::Status ScoreSequence(Backend& backend, const TriageSequence& sequence,
                           const PolicySpec& policy, const StopCheck& stop, ScoredSequence& scored,
                           TriageResult& result);

// Selects and measures what ScoreSequence left.
absl::Status SelectSequence(Backend& backend, const TriageSequence& sequence,
                            const PolicySpec& policy, const MeasureSpec& measure,
                            const StopCheck& stop, const ScoredSequence& scored,
                            TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_HALVES_H_
