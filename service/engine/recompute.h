// SelectRecompute: which rows of glued chunks to compute again (CacheBlend, arXiv 2405.16444).
#ifndef KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_
#define KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/divergence.h"
#include "kvtriage/kernels/fuse.h"
#include "service/engine/job.h"
#include "service/engine/job_context.h"
#include "service/engine/pin_set.h"

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

// Its steps, in this order. Between Diverge and Select nothing is pinned. `job`, `answer` and what
// `context` points to outlive the run.
class RecomputeRun {
 public:
  RecomputeRun(JobContext context, const Job& job, Answer& answer);

  absl::Status Diverge();
  // Of the candidates: what ranks add. With the relative metric of a group its two sums.
  std::vector<std::span<float>> Sums();
  uint32_t heads() const { return heads_; }  // that were summed; 0 without candidates
  uint64_t bytes() const;
  absl::Status Select();  // and checks the gather
  absl::Status Apply();   // gathers

 private:
  const JobContext context_;
  SessionMemory& memory_;
  const SelectRecomputeSpec& spec_;
  Answer& answer_;
  RowClasses classes_;
  DivergenceResult sums_;
  uint32_t heads_ = 0;
  std::optional<RowCopy> gather_;
  std::vector<int32_t> gathered_rows_;
  PinSet gather_pins_;
};

// The first half of a rank's SelectRecompute: everything until its divergences.
absl::StatusOr<std::unique_ptr<GroupPart>> ScoreRecomputePart(const JobContext& context,
                                                              const Job& job, Answer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_RECOMPUTE_H_
