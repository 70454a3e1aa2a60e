#include "service/engine/compress_run.h"

#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/answer_size.h"
#include "service/engine/decisions.h"
#include "service/engine/fold_rows.h"
#include "service/engine/move.h"
#include "service/engine/noop.h"
#include "service/engine/plan_tables.h"
#include "service/engine/planner.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {

std::vector<uint8_t> BitmapOf(const SequenceWrites& writes) {
  if (writes.entries.empty()) return {};
  std::vector<uint8_t> bitmap(CeilDiv(writes.blocks_used, 8));
  for (const uint32_t entry : writes.entries) {
    bitmap[entry / 8] = static_cast<uint8_t>(bitmap[entry / 8] | 1u << (entry % 8));
  }
  return bitmap;
}

void FillHead(const CompressSpec& spec, const CompressPlan& plan, CompressAnswer& answer) {
  answer.policy = spec.policy;
  answer.format = spec.format;
  answer.layers = static_cast<uint32_t>(plan.cache.layers.size());
  for (const PlanLayer& layer : plan.cache.layers) {
    answer.layer_indexes.push_back(layer.index);
    answer.heads.push_back(layer.kv_heads());
  }
}

CompressRun::CompressRun(JobContext context, Session& session, const CompressSpec& spec,
                         Answer& answer)
    : context_(std::move(context)),
      session_(session),
      spec_(spec),
      answer_(answer),
      body_(answer.body.emplace<CompressAnswer>()) {}

absl::Status CompressRun::Plan() {
  const Stopwatch watch;
  plan_.pins = PinSet(context_.device);
  const absl::Status status = PlanCompress(session_.memory(), session_.ledger(), spec_, plan_);
  Tell(Stage::kPlan, watch.seconds());
  return status;
}

absl::Status CompressRun::Triage() {
  scored_.resize(plan_.sequences.size());
  results_.resize(plan_.sequences.size());
  absl::Status status;
  for (size_t i = 0; i < results_.size() && status.ok(); ++i) {
    status = ScoreOne(i);
    if (status.ok()) status = SelectOne(i);
  }
  TellTriage();
  return status;
}

absl::Status CompressRun::Score() {
  scored_.resize(plan_.sequences.size());
  results_.resize(plan_.sequences.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(ScoreOne(i));
    if (scored_[i].shared.empty()) continue;
    // Shared lists are chosen by the sums alone.
    for (ScoreResult& layer : scored_[i].scores) layer.scores = {};
  }
  return absl::OkStatus();
}

void CompressRun::Unpin() { plan_.pins = PinSet(); }

absl::Status CompressRun::Select() {
  plan_ = CompressPlan();
  KVTRIAGE_RETURN_IF_ERROR(Plan());
  absl::Status status;
  for (size_t i = 0; i < results_.size() && status.ok(); ++i) {
    status = context_.stop();
    if (status.ok()) status = SelectOne(i);
  }
  TellTriage();
  return status;
}

std::vector<std::span<float>> CompressRun::SharedScores() {
  std::vector<std::span<float>> arrays;
  for (ScoredSequence& sequence : scored_) {
    arrays.insert(arrays.end(), sequence.shared.begin(), sequence.shared.end());
  }
  return arrays;
}

uint64_t CompressRun::ScoredBytes() const {
  uint64_t floats = 0;
  for (const ScoredSequence& sequence : scored_) {
    for (const std::vector<float>& list : sequence.shared) floats += list.size();
    for (const ScoreResult& layer : sequence.scores) {
      floats += layer.scores.size() + layer.second_scores.size() + layer.mass.size();
    }
    for (const ProtectedRows& set : sequence.plan.protect.sets) floats += set.rows.size();
  }
  return floats * sizeof(float);
}

absl::Status CompressRun::ScoreOne(size_t sequence) {
  KVTRIAGE_RETURN_IF_ERROR(context_.stop());
  const absl::Status status = ScoreSource(sequence);
  const auto info = GetErrorInfo(status);
  if (!info || info->field != "protect") return status;
  return WithFieldPrefix(status, SequenceField(sequence, ""));
}

absl::Status CompressRun::ScoreSource(size_t sequence) {
  if (spec_.keep_state) return ScoreAndKeep(sequence);
  const TriageSequence& triage = plan_.sequences[sequence].triage;
  if (!standing_.empty()) {
    return ScoreSums(context_.host_inputs, triage, spec_.policy, *standing_[sequence]->sums,
                     context_.stop, scored_[sequence], results_[sequence]);
  }
  return ScoreSequence(context_.backend, triage, spec_.policy, context_.stop, scored_[sequence],
                       results_[sequence]);
}

// The sums before they are pooled or weighed, then the scores from them.
absl::Status CompressRun::ScoreAndKeep(size_t sequence) {
  const TriageSequence& triage = plan_.sequences[sequence].triage;
  RowSums& sums = seeds_.emplace_back();
  Extend(triage.rows, sums);
  FoldCounts counts;
  uint32_t micros = 0;
  {
    const Stopwatch watch;
    const uint32_t rows = spec_.sequences[sequence].rows_count;
    KVTRIAGE_RETURN_IF_ERROR(FoldRows(context_.backend, triage.layers, triage.rows, rows,
                                      spec_.policy, context_.stop, sums, counts));
    KVTRIAGE_RETURN_IF_ERROR(CheckUsable(counts));
    FillEmpty(triage.layers, sums);
    micros = watch.micros();
  }
  KVTRIAGE_RETURN_IF_ERROR(ScoreSums(context_.host_inputs, triage, spec_.policy, sums,
                                     context_.stop, scored_[sequence], results_[sequence]));
  TriageResult& result = results_[sequence];
  result.times.score += micros;
  for (size_t l = 0; l < counts.skipped.size(); ++l) {
    result.layers[l].skipped_rows = static_cast<uint32_t>(counts.skipped[l]);
  }
  return absl::OkStatus();
}

void CompressRun::TakeResults(std::vector<TriageResult> results) {
  results_ = std::move(results);
  TellTriage();
}

absl::Status CompressRun::SelectOne(size_t sequence) {
  const absl::Status status =
      SelectSequence(context_.backend, plan_.sequences[sequence].triage, spec_.policy,
                     spec_.measure, context_.stop, scored_[sequence], results_[sequence]);
  scored_[sequence] = {};
  return status;
}

void CompressRun::TellTriage() {
  TriageTimes times;
  for (const TriageResult& result : results_) {
    times.score += result.times.score;
    times.select += result.times.select;
    times.measure += result.times.measure;
  }
  Tell(Stage::kScore, times.score * 1e-6);
  Tell(Stage::kSelect, times.select * 1e-6);
  if (spec_.measure.any()) Tell(Stage::kMeasure, times.measure * 1e-6);
  answer_.timing.score = times.score;
  answer_.timing.select = times.select;
  answer_.timing.measure = times.measure;
  FaultPoint("lane.after_select");
}

void CompressRun::CountAsChanged(size_t sequence) { results_[sequence].noop = false; }

absl::Status CompressRun::Prepare() {
  if (spec_.act.renumber) KVTRIAGE_RETURN_IF_ERROR(CheckRenumber());
  KVTRIAGE_RETURN_IF_ERROR(CheckWrites());
  Compose();
  KVTRIAGE_RETURN_IF_ERROR(CheckSize());
  return context_.stop();
}

absl::Status CompressRun::CheckRenumber() {
  for (size_t i = 0; i < results_.size(); ++i) {
    TriageResult& result = results_[i];
    for (const std::vector<int32_t>& list : result.kept) {
      if (list.size() == result.kept.front().size()) continue;
      return Error(ErrorReason::kLengthsUnequal, "act.renumber",
                   "one next position needs the same count in all heads and layers")
          .Index(i)
          .Got(list.size())
          .Limit(result.kept.front().size());
    }
    // Keeping everything is no reason not to turn what was asked for.
    if (result.noop && TurnsWhenAllStay(plan_, plan_.sequences[i])) result.noop = false;
  }
  return absl::OkStatus();
}

absl::Status CompressRun::CheckWrites() {
  for (size_t i = 0; i < results_.size(); ++i) {
    writes_.push_back(PlanWrites(plan_, plan_.sequences[i], results_[i], spec_.act.kind));
    if (spec_.act.kind != ActKind::kInPlace) continue;
    KVTRIAGE_RETURN_IF_ERROR(CheckShared(plan_.sequences[i], i, writes_.back()));
  }
  if (spec_.act.kind != ActKind::kCopy) return absl::OkStatus();
  return CheckDestinations(plan_, writes_);
}

void CompressRun::Compose() {
  FillHead(spec_, plan_, body_);
  for (size_t i = 0; i < results_.size(); ++i) {
    const SequenceSpec& sequence = spec_.sequences[i];
    SequenceOutcome outcome;
    outcome.sequence_id = sequence.sequence_id;
    outcome.kv_revision = sequence.kv_revision;
    outcome.logical_len = sequence.logical_len;
    outcome.physical_len = sequence.physical_len;
    outcome.kept = writes_[i].longest;
    // Kept keys keep their rotation unless they are renumbered.
    outcome.next_position = spec_.act.renumber ? outcome.kept : outcome.logical_len;
    outcome.blocks_used = static_cast<uint32_t>(writes_[i].blocks_used);
    outcome.rewritten_bitmap = BitmapOf(writes_[i]);
    body_.sequences.push_back(std::move(outcome));
  }
}

absl::Status CompressRun::CheckSize() const {
  uint64_t bytes = ResponseBound(body_);
  for (size_t i = 0; i < results_.size(); ++i) {
    bytes += TriageBound(results_[i], spec_.sequences[i].physical_len, spec_.format);
  }
  if (bytes <= context_.limits.max_response_bytes) return absl::OkStatus();
  return Error(ErrorReason::kResultTooLarge, "output", "the answer would be too large, in bytes")
      .Got(bytes)
      .Limit(context_.limits.max_response_bytes);
}

MoveReport CompressRun::Move(const LedgerJob& ledger) {
  if (spec_.act.kind == ActKind::kSelectOnly) return NoMoves();
  const Stopwatch watch;
  MoveReport report = spec_.act.kind == ActKind::kCopy
                          ? Copy()
                          : MoveInPlace(context_.backend, ledger, plan_, results_, writes_);
  answer_.timing.move = watch.micros();
  Tell(Stage::kMove, watch.seconds());
  return report;
}

MoveReport CompressRun::NoMoves() const {
  return {absl::OkStatus(), results_.size(), std::vector<uint64_t>(results_.size())};
}

MoveReport CompressRun::Copy() {
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

void CompressRun::ReportDecisions(const MoveReport& report) const {
  if (context_.observer == nullptr) return;
  for (size_t i = 0; i < results_.size(); ++i) {
    const bool failed = !report.status.ok() && i >= report.sequences;
    TellDecision(*context_.observer, spec_, plan_, plan_.sequences[i], results_[i], writes_[i],
                 failed, failed ? 0 : report.bytes_moved[i]);
  }
}

absl::Status CompressRun::MoveFailed(const MoveReport& report) const {
  // After a failed copy the worker goes on with its sources, as if nothing had been asked.
  const bool copy = spec_.act.kind == ActKind::kCopy;
  return WriteFailed(report.status, SequenceField(report.sequences, "table"), "moving rows failed",
                     copy ? CacheState::kUnharmed : CacheState::kSeeLedger);
}

void CompressRun::Complete(size_t sequence, uint32_t kv_revision) {
  body_.sequences[sequence].kv_revision = kv_revision;
  body_.sequences[sequence].triage = std::move(results_[sequence]);
}

void CompressRun::Tell(Stage stage, double seconds) const {
  if (context_.observer != nullptr) context_.observer->OnStage(stage, seconds);
}

}  // namespace kvtriage
