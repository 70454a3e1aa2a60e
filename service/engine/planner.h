// From a checked CompressSpec to a plan. Runs on the lane's thread and writes nothing.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLANNER_H_
#define KVTRIAGE_SERVICE_ENGINE_PLANNER_H_

#include "absl/status/status.h"
#include "service/engine/plan.h"
#include "service/memory/ledger.h"

namespace kvtriage {

// Resolves and checks everything that does not depend on the kept sets;
// service/engine/plan_writes.h does the rest after the selection. service/validate has checked what
// the request alone can tell. `ledger` is the session's. Errors: those of plan_cache.h,
// plan_tables.h and plan_inputs.h, explicit counts that fit neither layers and heads
// (FIELD_INVALID) nor the length rule (LENGTHS_UNEQUAL), and for writing in place FIELD_INVALID (no
// such slot) and LEDGER_TOO_SMALL; for a copy GEOMETRY_INVALID and DESTINATION_OVERLAP (caches that
// share memory). On an error the pins taken so far drop with `plan`.
absl::Status PlanCompress(SessionMemory& memory, const Ledger* ledger, const CompressSpec& spec,
                          CompressPlan& plan);

// Counts that a ledger unit carries: one per KV head, or one when heads share a set.
uint32_t CountsPerUnit(const CompressSpec& spec, const PlanCache& cache);

// Bytes of one row of all heads of the layers `indexes` (empty = all); 0 when the cache is not
// known. Any thread.
uint64_t SequenceRowBytes(SessionMemory& memory, uint64_t cache_id,
                          std::span<const uint32_t> indexes);

// About how many bytes the lane will read for a Compress; 0 when its cache is not known. Any
// thread.
uint64_t EstimateBytes(SessionMemory& memory, const CompressSpec& spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLANNER_H_
