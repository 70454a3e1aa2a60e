#include "service/engine/compress_job.h"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/answer_size.h"
#include "service/engine/decisions.h"
#include "service/engine/in_place.h"
#include "service/engine/plan_tables.h"
#include "service/engine/planner.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

std::vector<uint8_t> BitmapOf(const SequenceWrites& writes) {
  if (writes.entries.empty()) return {};
  std::vector<uint8_t> bitmap(CeilDiv(writes.blocks_used, 8));
  for (const uint32_t entry : writes.entries) {
    bitmap[entry / 8] = static_cast<uint8_t>(bitmap[entry / 8] | 1u << (entry % 8));
  }
  return bitmap;
}

SequenceEffect EffectOf(ActKind act, bool noop) {
  if (noop) return SequenceEffect::kNone;
  switch (act) {
    case ActKind::kSelectOnly:
      return SequenceEffect::kAdvice;
    case ActKind::kCopy:
      return SequenceEffect::kCopied;
    case ActKind::kInPlace:
      return SequenceEffect::kMoved;
  }
  return SequenceEffect::kNone;
}

class CompressRun {
 public:
  CompressRun(const JobContext& context, const Job& job, Answer& answer)
      : context_(context),
        job_(job),
        spec_(std::get<CompressSpec>(job.spec)),
        answer_(answer),
        body_(answer.body.emplace<CompressAnswer>()) {}

  absl::Status Run() {
    KVTRIAGE_RETURN_IF_ERROR(CheckFences());
    KVTRIAGE_RETURN_IF_ERROR(Plan());
    KVTRIAGE_RETURN_IF_ERROR(Triage());
    KVTRIAGE_RETURN_IF_ERROR(CheckWrites());
    Compose();
    KVTRIAGE_RETURN_IF_ERROR(CheckSize());
    KVTRIAGE_RETURN_IF_ERROR(context_.stop());  // from here on nothing stops the job
    return Apply();
  }

 private:
  absl::Status CheckFences() {
    for (size_t i = 0; i < spec_.sequences.size(); ++i) {
      const absl::Status status = job_.sequences->Check(spec_.sequences[i]);
      if (!status.ok()) return WithFieldPrefix(status, SequenceField(i, ""));
    }
    return absl::OkStatus();
  }

  absl::Status Plan() {
    const Stopwatch watch;
    const absl::Status status =
        PlanCompress(job_.call.session->memory(), job_.call.session->ledger(), spec_, plan_);
    Tell(Stage::kPlan, watch.seconds());
    return status;
  }

  absl::Status Triage() {
    results_.resize(plan_.sequences.size());
    TriageTimes times;
    absl::Status status;
    for (size_t i = 0; i < results_.size() && status.ok(); ++i) {
      status = context_.stop();
      if (!status.ok()) break;
      status = TriageOne(context_.backend, plan_.sequences[i].triage, spec_.policy, spec_.measure,
                         context_.stop, results_[i]);
      times.score += results_[i].times.score;
      times.select += results_[i].times.select;
      times.measure += results_[i].times.measure;
      const auto info = GetErrorInfo(status);
      if (info && info->reason == ErrorReason::kBudgetTooSmall) {
        status = WithFieldPrefix(status, SequenceField(i, ""));
      }
    }
    Tell(Stage::kScore, times.score * 1e-6);
    Tell(Stage::kSelect, times.select * 1e-6);
    if (spec_.measure.any()) Tell(Stage::kMeasure, times.measure * 1e-6);
    answer_.timing.score = times.score;
    answer_.timing.select = times.select;
    answer_.timing.measure = times.measure;
    FaultPoint("lane.after_select");
    return status;
  }

  absl::Status CheckWrites() {
    for (size_t i = 0; i < results_.size(); ++i) {
      writes_.push_back(PlanWrites(plan_, plan_.sequences[i], results_[i], spec_.act.kind));
      if (spec_.act.kind != ActKind::kInPlace) continue;
      KVTRIAGE_RETURN_IF_ERROR(CheckShared(plan_.sequences[i], i, writes_.back()));
    }
    if (spec_.act.kind != ActKind::kCopy) return absl::OkStatus();
    return CheckDestinations(plan_, writes_);
  }

  // The answer as it will be when the moves succeed; kv_revision and the kept sets come last.
  void Compose() {
    body_.policy = spec_.policy;
    body_.layers = static_cast<uint32_t>(plan_.cache.layers.size());
    for (const PlanLayer& layer : plan_.cache.layers) {
      body_.layer_indexes.push_back(layer.index);
      body_.heads.push_back(layer.kv_heads());
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      const SequenceSpec& sequence = spec_.sequences[i];
      SequenceOutcome outcome;
      outcome.sequence_id = sequence.sequence_id;
      outcome.kv_revision = sequence.kv_revision;
      outcome.logical_len = sequence.logical_len;
      outcome.physical_len = sequence.physical_len;
      outcome.kept = writes_[i].longest;
      outcome.blocks_used = static_cast<uint32_t>(writes_[i].blocks_used);
      outcome.rewritten_bitmap = BitmapOf(writes_[i]);
      body_.sequences.push_back(std::move(outcome));
    }
  }

  absl::Status CheckSize() const {
    uint64_t bytes = ResponseBound(body_);
    for (const TriageResult& result : results_) bytes += TriageBound(result);
    if (bytes <= context_.limits.max_response_bytes) return absl::OkStatus();
    return Error(ErrorReason::kResultTooLarge, "output", "the answer would be too large, in bytes")
        .Got(bytes)
        .Limit(context_.limits.max_response_bytes);
  }

  absl::Status Apply() {
    const Stopwatch watch;
    const ActKind act = spec_.act.kind;
    const MoveReport report = act == ActKind::kInPlace ? MoveInPlace()
                              : act == ActKind::kCopy  ? Copy()
                                                       : NoMoves();
    answer_.timing.move = act == ActKind::kSelectOnly ? 0 : watch.micros();
    if (act != ActKind::kSelectOnly) Tell(Stage::kMove, watch.seconds());
    ReportDecisions(report);
    // After a failed copy the worker goes on with its sources, as if nothing had been asked.
    if (!report.status.ok() && act == ActKind::kCopy)
      return MoveFailed(report, CacheState::kUnharmed);
    for (size_t i = 0; i < report.sequences; ++i) {
      SequenceOutcome& outcome = body_.sequences[i];
      outcome.kv_revision =
          job_.sequences->Record(spec_.sequences[i], EffectOf(act, results_[i].noop), outcome.kept);
      outcome.triage = std::move(results_[i]);
    }
    if (report.status.ok()) return absl::OkStatus();
    // The damaged sequence is no longer what we know of it.
    job_.sequences->Forget(spec_.sequences[report.sequences].sequence_id);
    return MoveFailed(report, CacheState::kSeeLedger);
  }

  static absl::Status MoveFailed(const MoveReport& report, CacheState state) {
    return Error(ErrorReason::kMoveFailed, SequenceField(report.sequences, "table"),
                 "moving rows failed")
        .State(state);
  }

  MoveReport MoveInPlace() {
    const LedgerJob ledger{job_.call.session->ledger(), spec_.act.ledger_slot, spec_.header.key,
                           job_.id, CountsPerUnit(spec_, plan_.cache)};
    return kvtriage::MoveInPlace(context_.backend, ledger, plan_, results_, writes_);
  }

  MoveReport NoMoves() const {
    return {absl::OkStatus(), results_.size(), std::vector<uint64_t>(results_.size())};
  }

  MoveReport Copy() {
    MoveReport report;
    for (size_t i = 0; i < results_.size(); ++i) {
      uint64_t bytes = 0;
      if (!results_[i].noop) {
        const absl::StatusOr<uint64_t> copied = MoveSequence(
            context_.backend, plan_, plan_.sequences[i], results_[i], writes_[i], ActKind::kCopy);
        if (!copied.ok()) {
          report.status = copied.status();
          return report;
        }
        bytes = *copied;
      }
      report.bytes_moved.push_back(bytes);
      report.sequences = i + 1;
    }
    return report;
  }

  void ReportDecisions(const MoveReport& report) const {
    if (context_.observer == nullptr) return;
    for (size_t i = 0; i < results_.size(); ++i) {
      const bool failed = !report.status.ok() && i >= report.sequences;
      TellDecision(*context_.observer, spec_, plan_, plan_.sequences[i], results_[i], writes_[i],
                   failed, failed ? 0 : report.bytes_moved[i]);
    }
  }

  void Tell(Stage stage, double seconds) const {
    if (context_.observer != nullptr) context_.observer->OnStage(stage, seconds);
  }

  const JobContext& context_;
  const Job& job_;
  const CompressSpec& spec_;
  Answer& answer_;
  CompressAnswer& body_;
  CompressPlan plan_;
  std::vector<TriageResult> results_;
  std::vector<SequenceWrites> writes_;
};

}  // namespace

absl::Status RunCompress(const JobContext& context, const Job& job, Answer& answer) {
  return CompressRun(context, job, answer).Run();
}

}  // namespace kvtriage
