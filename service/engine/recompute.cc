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

absl::Status CheckSameShape(const DivergenceRequest& request) {
  const ViewLayout& fresh = request.fresh.view.layout;
  const ViewLayout& cached = request.cached.view.layout;
  if (fresh.heads == cached.heads && fresh.row_elems == cached.row_elems) return absl::OkStatus();
  const bool heads = fresh.heads != cached.heads;
  return Error(ErrorReason::kGeometryInvalid, "cached",
               heads ? "other number of heads than fresh" : "other head size than fresh")
      .Got(heads ? cached.heads : cached.row_elems)
      .Limit(heads ? fresh.heads : fresh.row_elems);
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

RecomputeRun::RecomputeRun(JobContext context, const Job& job, Answer& answer)
    : context_(std::move(context)),
      memory_(job.call.session->memory()),
      spec_(std::get<SelectRecomputeSpec>(job.spec)),
      answer_(answer),
      gather_pins_(context_.device) {}

absl::Status RecomputeRun::Diverge() {
  KVTRIAGE_RETURN_IF_ERROR(CheckMust(spec_));
  classes_ = ClassifyRows(spec_);
  if (classes_.candidates.empty()) return absl::OkStatus();
  const Stopwatch scoring;
  PinSet pins(context_.device);
  DivergenceRequest request;
  KVTRIAGE_ASSIGN_OR_RETURN(request.fresh,
                            ResolveRows(memory_, spec_.fresh, classes_.candidates, "fresh", pins));
  KVTRIAGE_ASSIGN_OR_RETURN(
      request.cached, ResolveRows(memory_, spec_.cached, classes_.candidates, "cached", pins));
  FaultPoint("plan.after_pins");
  KVTRIAGE_RETURN_IF_ERROR(CheckSameShape(request));
  FaultPoint("plan.after_checks");
  KVTRIAGE_RETURN_IF_ERROR(context_.stop());
  request.rows = classes_.candidates;
  request.metric = spec_.metric;
  request.apart = spec_.group && spec_.metric == DivergenceMetric::kRelative;
  KVTRIAGE_RETURN_IF_ERROR(context_.backend.Diverge(request, sums_));
  heads_ = request.fresh.view.layout.heads;
  answer_.timing.score = scoring.micros();
  return absl::OkStatus();
}

std::vector<std::span<float>> RecomputeRun::Sums() {
  if (sums_.divergence.empty()) return {};
  if (sums_.old.empty()) return {sums_.divergence};
  return {sums_.divergence, sums_.old};
}

uint64_t RecomputeRun::bytes() const {
  return (sums_.divergence.size() + sums_.old.size() + classes_.candidates.size() +
          classes_.must.size()) *
         sizeof(float);
}

absl::Status RecomputeRun::Select() {
  const Stopwatch selecting;
  std::vector<float>& divergence = sums_.divergence;
  for (size_t i = 0; i < sums_.old.size(); ++i) {
    divergence[i] = RelativeDivergence(divergence[i], sums_.old[i]);
  }
  RecomputeAnswer& body = answer_.body.emplace<RecomputeAnswer>();
  body.nonfinite_rows = ForceDamaged(classes_, divergence);
  HkvdResult hkvd = SelectHkvd(classes_.candidates, divergence,
                               {spec_.ratio, spec_.threshold, BaseOf(spec_, classes_)});
  if (spec_.metric == DivergenceMetric::kRelative) {
    body.left_divergence = LargestLeft(classes_, divergence, hkvd.rows);
  }
  Fill(spec_, classes_, std::move(hkvd), body);
  answer_.timing.select = selecting.micros();
  const uint64_t bytes = ResponseBound(body);
  if (bytes > context_.limits.max_response_bytes) {
    return Error(ErrorReason::kResultTooLarge, "", "the answer would be too large, in bytes")
        .Got(bytes)
        .Limit(context_.limits.max_response_bytes);
  }
  if (!spec_.gather || body.rows.empty()) return absl::OkStatus();
  KVTRIAGE_ASSIGN_OR_RETURN(gather_,
                            PlanGather(memory_, spec_, body.rows, gathered_rows_, gather_pins_));
  return context_.stop();
}

absl::Status RecomputeRun::Apply() {
  if (gather_) {
    RowCopyResult result;
    KVTRIAGE_RETURN_IF_ERROR(context_.backend.CopyRows({&*gather_, 1}, result));
  }
  Tell(context_.observer, std::get<RecomputeAnswer>(answer_.body));
  return absl::OkStatus();
}

absl::Status RunRecompute(const JobContext& context, const Job& job, Answer& answer) {
  RecomputeRun run(context, job, answer);
  KVTRIAGE_RETURN_IF_ERROR(run.Diverge());
  KVTRIAGE_RETURN_IF_ERROR(run.Select());
  return run.Apply();
}

}  // namespace kvtriage
