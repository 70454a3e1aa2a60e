// The moves of one sequence: one move group, all its layers.
#ifndef KVTRIAGE_SERVICE_ENGINE_MOVE_H_
#define KVTRIAGE_SERVICE_ENGINE_MOVE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "service/engine/plan_writes.h"

namespace kvtriage {

// Moves K, V and companions of every layer, then turns the keys if the plan renumbers. Bytes
// written. Any error leaves rows half moved.
absl::StatusOr<uint64_t> MoveSequence(Backend& backend, const CompressPlan& plan,
                                      const PlanSequence& sequence, const TriageResult& result,
                                      const SequenceWrites& writes, ActKind act);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_MOVE_H_
