// The measuring half of a triage.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_QUALITY_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_QUALITY_H_

#include <vector>

#include "absl/status/status.h"
#include "kvtriage/kernels/backend.h"
#include "service/engine/triage_halves.h"

namespace kvtriage {

// Share of the window's attention that the kept rows hold, per (layer, KV head); empty when
// `scores` know no attention. A row summed over all heads gives each of them the same share.
std::vector<double> WindowMass(const TriageSequence& sequence,
                               const std::vector<ScoreResult>& scores, const TriageResult& result);

// Fills result.quality and the layers' lse_suspect.
absl::Status MeasureLayers(Backend& backend, const TriageSequence& sequence,
                           const MeasureSpec& measure, const ScoredSequence& scored,
                           const StopCheck& stop, TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_QUALITY_H_
