#include "service/engine/recompute.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <variant>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/answer_size.h"
#include "service/engine/query_gather.h"
#include "service/engine/row_source.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

absl::Status CheckMust(const SelectRecomputeSpec& spec) {
  for (size_t i = 0; i < spec.must.size(); ++i) {
    const uint64_t row = static_cast<uint32_t>(spec.must[i]);
    if (row >= spec.rows) {
      return Error(ErrorReason::kIndexOutOfRange, "must_le", "row outside the sequence")
          .Index(i)
          .Got(row)
          .Limit(spec.rows);
    }
    if (row < spec.prefix) {
      return Error(ErrorReason::kIndexInvalid, "must_le", "row inside the prefix")
          .Index(i)
          .Got(row)
          .Limit(spec.prefix);
    }
  }
  return absl::OkStatus();
}

absl::Status Diverge(const JobContext& context, SessionMemory& memory,
                     const SelectRecomputeSpec& spec, std::span<const int32_t> rows,
                     std::vector<float>& divergence) {
  if (rows.empty()) return absl::OkStatus();
  PinSet pins;
  DivergenceRequest request;
  KVTRIAGE_ASSIGN_OR_RETURN(request.fresh, ResolveRows(memory, spec.fresh, rows, "fresh", pins));
  KVTRIAGE_ASSIGN_OR_RETURN(request.cached, ResolveRows(memory, spec.cached, rows, "cached", pins));
  FaultPoint("plan.after_pins");
  const ViewLayout& fresh = request.fresh.view.layout;
  const ViewLayout& cached = request.cached.view.layout;
  if (fresh.heads != cached.heads || fresh.row_elems != cached.row_elems) {
    const bool heads = fresh.heads != cached.heads;
    return Error(ErrorReason::kGeometryInvalid, "cached",
                 heads ? "other number of heads than fresh" : "other head size than fresh")
        .Got(heads ? cached.heads : cached.row_elems)
        .Limit(heads ? fresh.heads : fresh.row_elems);
  }
  FaultPoint("plan.after_checks");
  KVTRIAGE_RETURN_IF_ERROR(context.stop());
  request.rows = rows;
  request.metric = spec.metric;
  DivergenceResult result;
  KVTRIAGE_RETURN_IF_ERROR(context.backend.Diverge(request, result));
  divergence = std::move(result.divergence);
  return absl::OkStatus();
}

// Moves candidates whose divergence is not finite to the rows that must be recomputed: their data
// is damaged. Answers how many there were.
uint32_t ForceDamaged(RowClasses& classes, std::vector<float>& divergence) {
  std::vector<int32_t> damaged;
  size_t kept = 0;
  for (size_t i = 0; i < divergence.size(); ++i) {
    if (!std::isfinite(divergence[i])) {
      damaged.push_back(classes.candidates[i]);
      continue;
    }
    classes.candidates[kept] = classes.candidates[i];
    divergence[kept++] = divergence[i];
  }
  classes.candidates.resize(kept);
  divergence.resize(kept);
  std::vector<int32_t> must;
  std::merge(classes.must.begin(), classes.must.end(), damaged.begin(), damaged.end(),
             std::back_inserter(must));
  classes.must = std::move(must);
  return static_cast<uint32_t>(damaged.size());
}

// What a ratio refers to: the first check layer's candidates, also at the layers behind it.
uint32_t BaseOf(const SelectRecomputeSpec& spec, const RowClasses& classes) {
  return spec.previous ? spec.previous->base : static_cast<uint32_t>(classes.candidates.size());
}

// Largest divergence of the candidates that were not chosen; both lists ascend.
double LargestLeft(const RowClasses& classes, std::span<const float> divergence,
                   std::span<const int32_t> chosen) {
  double largest = 0;
  size_t next = 0;
  for (size_t i = 0; i < classes.candidates.size(); ++i) {
    if (next < chosen.size() && chosen[next] == classes.candidates[i]) {
      ++next;
    } else {
      largest = std::max(largest, double{divergence[i]});
    }
  }
  return largest;
}

void Fill(const SelectRecomputeSpec& spec, const RowClasses& classes, HkvdResult hkvd,
          RecomputeAnswer& answer) {
  std::merge(classes.must.begin(), classes.must.end(), hkvd.rows.begin(), hkvd.rows.end(),
             std::back_inserter(answer.rows));
  answer.is_must.reserve(answer.rows.size());
  for (const int32_t row : answer.rows) {
    answer.is_must.push_back(std::binary_search(classes.must.begin(), classes.must.end(), row));
  }
  answer.limits = KeyLimits(spec, answer.rows);
  answer.must = static_cast<uint32_t>(classes.must.size());
  answer.hkvd = static_cast<uint32_t>(hkvd.rows.size());
  answer.base = BaseOf(spec, classes);
  answer.gap = hkvd.gap;
  answer.divergence_share = hkvd.divergence_share;
}

absl::Status Gather(const JobContext& context, const Job& job, const std::vector<int32_t>& rows) {
  const auto& spec = std::get<SelectRecomputeSpec>(job.spec);
  PinSet pins;
  std::vector<int32_t> from_row;
  KVTRIAGE_ASSIGN_OR_RETURN(const RowCopy copy,
                            PlanGather(job.call.session->memory(), spec, rows, from_row, pins));
  KVTRIAGE_RETURN_IF_ERROR(context.stop());
  RowCopyResult result;
  return context.backend.CopyRows({&copy, 1}, result);
}

void Tell(EngineObserver* observer, const RecomputeAnswer& answer) {
  if (observer == nullptr) return;
  BlendDecision decision;
  decision.reused = answer.base - answer.hkvd;
  decision.recompute = static_cast<uint32_t>(answer.rows.size());
  decision.covered_divergence = answer.divergence_share;
  decision.left_divergence = answer.left_divergence;
  observer->OnBlend(decision);
}

}  // namespace

absl::Status RunRecompute(const JobContext& context, const Job& job, Answer& answer) {
  const auto& spec = std::get<SelectRecomputeSpec>(job.spec);
  KVTRIAGE_RETURN_IF_ERROR(CheckMust(spec));
  RowClasses classes = ClassifyRows(spec);
  std::vector<float> divergence;
  const Stopwatch scoring;
  KVTRIAGE_RETURN_IF_ERROR(
      Diverge(context, job.call.session->memory(), spec, classes.candidates, divergence));
  answer.timing.score = scoring.micros();
  const Stopwatch selecting;
  RecomputeAnswer& body = answer.body.emplace<RecomputeAnswer>();
  body.nonfinite_rows = ForceDamaged(classes, divergence);
  HkvdResult hkvd = SelectHkvd(classes.candidates, divergence,
                               {spec.ratio, spec.threshold, BaseOf(spec, classes)});
  if (spec.metric == DivergenceMetric::kRelative) {
    body.left_divergence = LargestLeft(classes, divergence, hkvd.rows);
  }
  Fill(spec, classes, std::move(hkvd), body);
  answer.timing.select = selecting.micros();
  const uint64_t bytes = ResponseBound(body);
  if (bytes > context.limits.max_response_bytes) {
    return Error(ErrorReason::kResultTooLarge, "", "the answer would be too large, in bytes")
        .Got(bytes)
        .Limit(context.limits.max_response_bytes);
  }
  if (spec.gather && !body.rows.empty()) KVTRIAGE_RETURN_IF_ERROR(Gather(context, job, body.rows));
  Tell(context.observer, body);
  return absl::OkStatus();
}

}  // namespace kvtriage
