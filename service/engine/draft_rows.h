// Keeping the queries of draft rows, and giving them back as inputs.
#ifndef KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_
#define KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "service/engine/plan.h"
#include "service/engine/running_scores.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

// Copies the newest `rows` query rows of every layer's input, which brings Q, and O and LSE or not.
// Widening to float32 is exact, so they vote later with the bits they would have voted with now.
// Errors: NewestRows (read_rows.h), which `copier` is for.
absl::StatusOr<std::shared_ptr<const DraftRows>> KeepDrafts(const std::vector<TriageLayer>& layers,
                                                            uint32_t rows, DeviceCopier* copier);

// Bytes of those.
uint64_t DraftBytes(const std::vector<TriageLayer>& layers, uint32_t rows);

// The first `rows` kept rows as inputs over the K and V of `layers`. The views point into `drafts`.
std::vector<TriageLayer> DraftInputs(const DraftRows& drafts, uint32_t rows, const PlanCache& cache,
                                     const std::vector<TriageLayer>& layers);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_DRAFT_ROWS_H_
