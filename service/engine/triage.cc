#include "service/engine/triage.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/core/status_macros.h"
#include "service/engine/triage_budget.h"
#include "service/engine/triage_halves.h"
#include "service/engine/triage_lists.h"
#include "service/engine/triage_quality.h"
#include "service/engine/triage_score.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// Adds the time until it is destroyed to a field of TriageTimes.
class Stopwatch {
 public:
  explicit Stopwatch(uint32_t& micros)
      : micros_(micros), start_(std::chrono::steady_clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    micros_ += static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count());
  }

 private:
  uint32_t& micros_;
  const std::chrono::steady_clock::time_point start_;
};

void KeepAll(uint32_t rows, const ListLayout& lists, TriageResult& result) {
  result.noop = true;
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  result.kept.assign(lists.count, all);
}

void CountKept(const TriageSequence& sequence, const ProtectPlan* protect, TriageResult& result) {
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    TriageLayerOutcome& layer = result.layers[l];
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h) {
      layer.kept = std::max(layer.kept, static_cast<uint32_t>(result.ListOf(l, h).size()));
      if (protect == nullptr) continue;
      layer.trimmed = std::max(layer.trimmed, protect->Of(result.NumberOf(l, h)).trimmed);
    }
  }
}

}  // namespace

absl::Status ScoreSequence(Backend& backend, const TriageSequence& sequence,
                           const PolicySpec& policy, const StopCheck& stop, ScoredSequence& scored,
                           TriageResult& result) {
  result = {};
  scored.lists = LayOutLists(sequence, policy.granularity);
  result.layers.resize(sequence.layers.size());
  for (size_t l = 0; l < result.layers.size(); ++l) {
    result.layers[l].first_list = scored.lists.first[l];
    result.layers[l].list_step = scored.lists.step;
  }
  KVTRIAGE_ASSIGN_OR_RETURN(scored.plan, PlanKeep(sequence, scored.lists, policy));
  result.recent = scored.plan.recent;
  if (scored.plan.keeps_all) {
    KeepAll(sequence.rows, scored.lists, result);
    return absl::OkStatus();
  }
  {
    const Stopwatch watch(result.times.score);
    KVTRIAGE_RETURN_IF_ERROR(
        ScoreLayers(backend, sequence, policy, scored.lists, scored.plan, stop, scored.scores));
    scored.shared = ShareScores(policy.granularity, sequence.rows, scored.scores);
  }
  for (uint32_t l = 0; l < scored.scores.size(); ++l) {
    result.layers[l].nonfinite_tokens = scored.scores[l].nonfinite_tokens;
    result.layers[l].skipped_rows = scored.scores[l].skipped_rows;
  }
  FaultPoint("lane.after_score");
  return absl::OkStatus();
}

absl::Status SelectSequence(Backend& backend, const TriageSequence& sequence,
                            const PolicySpec& policy, const MeasureSpec& measure,
                            const StopCheck& stop, const ScoredSequence& scored,
                            TriageResult& result) {
  if (!result.noop) {
    const Stopwatch watch(result.times.select);
    KVTRIAGE_RETURN_IF_ERROR(SelectRows(backend, sequence, policy, scored, result));
    result.window_mass = WindowMass(sequence, scored.scores, result);
  }
  const ProtectPlan* protect = result.noop ? nullptr : &scored.plan.protect;
  CountKept(sequence, protect, result);
  if (!measure.any() || sequence.rows == 0) return absl::OkStatus();
  const Stopwatch watch(result.times.measure);
  return MeasureLayers(backend, sequence, measure, scored, stop, result);
}

absl::Status TriageOne(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                       const MeasureSpec& measure, const StopCheck& stop, TriageResult& result) {
  ScoredSequence scored;
  KVTRIAGE_RETURN_IF_ERROR(ScoreSequence(backend, sequence, policy, stop, scored, result));
  return SelectSequence(backend, sequence, policy, measure, stop, scored, result);
}

}  // namespace kvtriage
