// What a finished decision tells the metrics.
#ifndef KVTRIAGE_SERVICE_ENGINE_DECISIONS_H_
#define KVTRIAGE_SERVICE_ENGINE_DECISIONS_H_

#include "service/engine/engine_observer.h"
#include "service/engine/plan_writes.h"

namespace kvtriage {

// One sequence of a Compress. `failed`: its rows were to be moved and that went wrong.
void TellDecision(EngineObserver& observer, const CompressSpec& spec, const CompressPlan& plan,
                  const PlanSequence& sequence, const TriageResult& result,
                  const SequenceWrites& writes, bool failed, uint64_t moved_bytes);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_DECISIONS_H_
