// The fences of a call: before it runs, and what they learn from it.
#ifndef KVTRIAGE_SERVICE_ENGINE_FENCES_H_
#define KVTRIAGE_SERVICE_ENGINE_FENCES_H_

#include "absl/status/status.h"
#include "service/engine/sequence_table.h"
#include "service/engine/triage.h"

namespace kvtriage {

// Whether every sequence of the call fits what we know. SEQUENCE_STALE, and when it renumbers
// POSITIONS_UNKNOWN (field "sequences[i]....").
absl::Status CheckFences(SequenceTable& sequences, const CompressSpec& spec);

// What a call that succeeds did to a sequence.
SequenceEffect EffectOf(ActKind act, bool noop);

// And to the positions of its keys: `result` has the kept lists of all layers of the call.
PositionEffect PositionsOf(const CompressSpec& spec, const TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_FENCES_H_
