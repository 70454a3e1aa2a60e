// Keeping the queries of draft rows, and giving them back as inputs.
#ifndef KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_
#define KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "service/engine/plan.h"
#include "service/engine/running_scores.h"

namespace kvtriage {

// Copies the newest `rows` query rows of every layer's input, which brings Q, and O and LSE or not.
// Widening to float32 is exact, so they vote later with the bits they would have voted with now.
std::shared_ptr<const DraftRows> KeepDrafts(const std::vector<TriageLayer>& layers, uint32_t rows);

// Bytes of those.
uint64_t DraftBytes(const std::vector<TriageLayer>& layers, uint32_t rows);

// The first `rows` kept rows as inputs over the K and V of `layers`. The views point into `drafts`.
std::vector<TriageLayer> DraftInputs(const DraftRows& drafts, uint32_t rows, const PlanCache& cache,
                                     const std::vector<TriageLayer>& layers);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_
