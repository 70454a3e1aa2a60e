#include "service/engine/observe.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/compress_job.h"
#include "service/engine/compress_run.h"
#include "service/engine/fences.h"
#include "service/engine/kept_scores.h"
#include "service/engine/observe_checks.h"
#include "service/engine/observe_step.h"
#include "service/engine/planner.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// What an answer says of a step beside the eviction.
constexpr uint64_t kStepBytes = 48;

// "sequences[2].table" of a plan of some of the steps as the caller knows it.
absl::Status AsSteps(const absl::Status& status, const std::vector<size_t>& steps) {
  constexpr std::string_view kListed = "sequences[";
  const auto info = GetErrorInfo(status);
  if (!info || !info->field.starts_with(kListed)) return status;
  char* end = nullptr;
  const size_t place = std::strtoul(info->field.c_str() + kListed.size(), &end, 10);
  return WithField(status, absl::StrCat("steps[", steps[place], "].sequence", end + 1));
}

absl::Status InStep(const absl::Status& status, size_t step, std::string_view below) {
  const auto info = GetErrorInfo(status);
  if (!info) return status;
  const std::string path = absl::StrCat("steps[", step, "]");
  if (info->field.empty()) return WithField(status, path);
  return WithField(status, absl::StrCat(path, ".", std::string(below), info->field));
}

// The same limits with room for what the steps themselves take.
EngineLimits LessAnswer(EngineLimits limits, size_t steps) {
  limits.max_response_bytes -= std::min(limits.max_response_bytes, steps * kStepBytes);
  return limits;
}

class ObserveRun {
 public:
  ObserveRun(const JobContext& context, const Job& job, Answer& answer)
      : job_(job),
        spec_(std::get<ObserveSpec>(job.spec)),
        limits_(LessAnswer(context.limits, spec_.steps.size())),
        context_{context.backend, context.host_inputs, context.copier,
                 context.device,  context.observer,    limits_,
                 context.stop},
        answer_(answer) {}

  absl::Status Run() {
    KVTRIAGE_RETURN_IF_ERROR(Meet());
    KVTRIAGE_RETURN_IF_ERROR(Plan());
    KVTRIAGE_RETURN_IF_ERROR(PlanEvictions());
    KVTRIAGE_RETURN_IF_ERROR(Fold());
    KVTRIAGE_RETURN_IF_ERROR(Select());
    if (run_) {
      KVTRIAGE_RETURN_IF_ERROR(AsSteps(run_->Prepare(), evicting_));
    } else {
      KVTRIAGE_RETURN_IF_ERROR(context_.stop());  // from here on nothing stops the job
    }
    return Apply();
  }

 private:
  // Fences, and what is known of every sequence.
  absl::Status Meet() {
    SequenceTable& table = *job_.sequences;
    for (size_t i = 0; i < spec_.sequences.size(); ++i) {
      const SequenceSpec& sequence = spec_.sequences[i];
      KVTRIAGE_RETURN_IF_ERROR(InStep(table.Check(sequence), i, "sequence."));
      const ScoresPtr scores = table.ScoresOf(sequence.sequence_id, sequence.generation);
      known_.push_back(Settled(scores, sequence.total_dropped));
      lost_ += scores != nullptr && known_.back() == nullptr ? 1 : 0;
    }
    KVTRIAGE_ASSIGN_OR_RETURN(policy_, PolicyOf(spec_, known_));
    KVTRIAGE_RETURN_IF_ERROR(CheckSteps(spec_, policy_, known_));
    for (size_t i = 0; i < spec_.steps.size(); ++i) all_.push_back(i);
    KVTRIAGE_RETURN_IF_ERROR(AsSteps(CheckScoreRoom(table, spec_.sequences), all_));
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      if (!Evicts(spec_, policy_, i)) continue;
      evicting_.push_back(i);
      if (!spec_.act.renumber) continue;
      KVTRIAGE_RETURN_IF_ERROR(InStep(table.CheckPositions(spec_.sequences[i]), i, "sequence."));
    }
    return absl::OkStatus();
  }

  // Everything that was sent, whether a step evicts or not.
  absl::Status Plan() {
    const Stopwatch watch;
    whole_ = SpecOf(all_);
    whole_.act = {};
    Session& session = *job_.call.session;
    plan_.pins = PinSet(context_.device);
    KVTRIAGE_RETURN_IF_ERROR(
        AsSteps(PlanCompress(session.memory(), session.ledger(), whole_, plan_), all_));
    for (const ScoresPtr& known : known_) {
      if (known != nullptr) KVTRIAGE_RETURN_IF_ERROR(CheckShape(*known, plan_.cache));
    }
    Tell(Stage::kPlan, watch);
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      auto lease = known_[i] == nullptr ? job_.sequences->NewLease() : known_[i]->lease;
      sequences_.push_back(
          std::make_unique<ObservedSequence>(policy_, spec_.steps[i], known_[i], std::move(lease)));
      KVTRIAGE_RETURN_IF_ERROR(
          InStep(sequences_[i]->Reserve(plan_.cache, plan_.sequences[i],
                                        std::binary_search(evicting_.begin(), evicting_.end(), i)),
                 i, ""));
    }
    return absl::OkStatus();
  }

  absl::Status PlanEvictions() {
    if (evicting_.empty()) return absl::OkStatus();
    cut_ = SpecOf(evicting_);
    run_.emplace(context_, *job_.call.session, cut_, evicted_);
    return AsSteps(run_->Plan(), evicting_);
  }

  absl::Status Fold() {
    const Stopwatch watch;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      KVTRIAGE_RETURN_IF_ERROR(context_.stop());
      KVTRIAGE_RETURN_IF_ERROR(sequences_[i]->Fold(context_, plan_.cache, plan_.sequences[i]));
    }
    FaultPoint("lane.after_score");
    folded_ = watch.micros();
    if (!run_ || !KeepsSums(policy_)) Tell(Stage::kScore, watch);
    return absl::OkStatus();
  }

  absl::Status Select() {
    if (!run_) return absl::OkStatus();
    if (!KeepsSums(policy_)) return AsSteps(run_->Triage(), evicting_);
    std::vector<TriageResult> results(evicting_.size());
    for (size_t j = 0; j < evicting_.size(); ++j) {
      const TriageSequence& sequence = run_->plan().sequences[j].triage;
      const absl::Status status = sequences_[evicting_[j]]->Triage(context_, sequence, results[j]);
      const auto info = GetErrorInfo(status);
      if (info && info->field == "protect") return InStep(status, evicting_[j], "sequence.");
      KVTRIAGE_RETURN_IF_ERROR(status);
      if (j == 0) results[j].times.score += folded_;
    }
    run_->TakeResults(std::move(results));
    return absl::OkStatus();
  }

  absl::Status Apply() {
    if (run_) KVTRIAGE_RETURN_IF_ERROR(Evict());
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (!std::binary_search(evicting_.begin(), evicting_.end(), i)) Settle(i, nullptr);
    }
    for (; lost_ > 0 && context_.observer != nullptr; --lost_) {
      context_.observer->OnScoresDropped();
    }
    return Compose();
  }

  absl::Status Evict() {
    const ActKind act = spec_.act.kind;
    const MoveReport report = MoveWithSlot(job_, cut_, wire::LedgerOp::kObserve, *run_);
    run_->ReportDecisions(report);
    if (!report.status.ok() && act == ActKind::kCopy) {
      return AsSteps(run_->MoveFailed(report), evicting_);
    }
    for (size_t j = 0; j < report.sequences; ++j) {
      run_->Complete(j, Settle(evicting_[j], &run_->results()[j]));
    }
    if (report.status.ok()) return absl::OkStatus();
    job_.sequences->Forget(cut_.sequences[report.sequences].sequence_id);
    return AsSteps(run_->MoveFailed(report), evicting_);
  }

  // The sequence's books; `result` is set when it was cut back. Its new revision.
  uint32_t Settle(size_t i, const TriageResult* result) {
    const SequenceSpec& sequence = spec_.sequences[i];
    const bool noop = result == nullptr || result->noop;
    const SequenceEffect effect = EffectOf(spec_.act.kind, noop);
    uint64_t kept = sequence.physical_len;
    if (result != nullptr) {
      kept = 0;
      for (const auto& list : result->kept) kept = std::max<uint64_t>(kept, list.size());
    }
    const uint32_t revision = job_.sequences->Record(
        sequence, effect, kept,
        result == nullptr ? PositionEffect::kSame : PositionsOf(cut_, *result));
    sequences_[i]->Commit();
    KeepScores(*job_.sequences, sequences_[i]->next(), effect, sequence,
               result == nullptr ? TriageResult() : *result, context_.observer);
    return revision;
  }

  absl::Status Compose() {
    ObserveAnswer body;
    body.policy = policy_;
    if (run_) body.evicted = std::move(std::get<CompressAnswer>(evicted_.body));
    PackKept(body.evicted);
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      const auto place = std::lower_bound(evicting_.begin(), evicting_.end(), i);
      ObserveAnswer::Step step;
      step.sequence_id = spec_.sequences[i].sequence_id;
      step.draft_rows = spec_.steps[i].draft_rows;
      step.started = sequences_[i]->started();
      if (place != evicting_.end() && *place == i) {
        step.evicted = static_cast<uint32_t>(place - evicting_.begin());
      }
      body.steps.push_back(step);
    }
    answer_.timing = evicted_.timing;
    if (!run_ || !KeepsSums(policy_)) answer_.timing.score += folded_;
    answer_.body = std::move(body);
    return absl::OkStatus();
  }

  CompressSpec SpecOf(const std::vector<size_t>& steps) const {
    CompressSpec spec;
    spec.header = spec_.header;
    spec.cache_id = spec_.cache_id;
    for (const size_t step : steps) spec.sequences.push_back(spec_.sequences[step]);
    spec.policy = policy_;
    spec.inputs = spec_.inputs;
    spec.act = spec_.act;
    spec.lengths = spec_.lengths;
    spec.format = spec_.format;
    return spec;
  }

  void Tell(Stage stage, const Stopwatch& watch) const {
    if (context_.observer != nullptr) context_.observer->OnStage(stage, watch.seconds());
  }

  const Job& job_;
  const ObserveSpec& spec_;
  const EngineLimits limits_;
  const JobContext context_;
  Answer& answer_;
  std::vector<ScoresPtr> known_;
  uint32_t lost_ = 0;  // sequences whose scores did not fit the call
  PolicySpec policy_;
  std::vector<size_t> all_, evicting_;  // steps
  CompressSpec whole_, cut_;
  CompressPlan plan_;  // of all steps
  std::vector<std::unique_ptr<ObservedSequence>> sequences_;
  uint32_t folded_ = 0;  // microseconds
  Answer evicted_;       // of the steps that evict
  std::optional<CompressRun> run_;
};

}  // namespace

absl::Status RunObserve(const JobContext& context, const Job& job, Answer& answer) {
  return ObserveRun(context, job, answer).Run();
}

}  // namespace kvtriage
