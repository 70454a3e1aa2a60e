// Whether a Compress changes a sequence at all: known from its plan, before anything is scored.
#ifndef KVTRIAGE_SERVICE_ENGINE_NOOP_H_
#define KVTRIAGE_SERVICE_ENGINE_NOOP_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Whether a key of the sequence turns when all its rows are kept and renumbered.
bool TurnsWhenAllStay(const CompressPlan& plan, const PlanSequence& sequence);

// Whether every layer keeps all rows of the sequence and, where the call renumbers, none of them
// turns. Errors: PlanKeep.
absl::StatusOr<bool> IsNoop(const CompressSpec& spec, const CompressPlan& plan, size_t sequence);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_NOOP_H_
