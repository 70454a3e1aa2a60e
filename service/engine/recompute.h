// SelectRecompute: which rows of glued chunks to compute again (CacheBlend, arXiv 2405.16444).
#ifndef KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_
#define KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_

#include "absl/status/status.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"

namespace kvtriage {

// Row classes of a call; behind a first check layer, candidates are only what that one chose.
// `must` and `candidates` ascend and are disjoint. Of the prefix only the last row of the whole
// sequence can be there: it must be computed unless the call says that it needs no logits.
struct RowClasses {
  std::vector<int32_t> must;
  std::vector<int32_t> candidates;
};
RowClasses ClassifyRows(const SelectRecomputeSpec& spec);

// Keys that each of `rows` may see: those at positions up to its own.
std::vector<int32_t> KeyLimits(const SelectRecomputeSpec& spec, const std::vector<int32_t>& rows);

// Reads fresh and cached values of the candidate rows only. Errors: MEMORY_UNKNOWN,
// RANGE_OUT_OF_REGION, GEOMETRY_INVALID (fresh and cached differ in heads or head size),
// FIELD_INVALID (a candidate row outside a tensor), INDEX_OUT_OF_RANGE (layer), TABLE_TOO_SHORT,
// BLOCK_OUT_OF_RANGE, UNSUPPORTED (opaque rows), INDEX_INVALID (a `must` row inside the prefix),
// RESULT_TOO_LARGE, and those of PlanGather. Nothing is written but the gathered rows, last.
absl::Status RunRecompute(const JobContext& context, const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_
