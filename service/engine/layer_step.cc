#include "service/engine/layer_step.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/answer_size.h"
#include "service/engine/compress_run.h"
#include "service/engine/decisions.h"
#include "service/engine/fences.h"
#include "service/engine/kept_scores.h"
#include "service/engine/layer_spec.h"
#include "service/engine/layer_stream.h"
#include "service/engine/layer_whole.h"
#include "service/engine/noop.h"
#include "service/engine/planner.h"
#include "service/engine/stopwatch.h"

namespace kvtriage {
namespace {

bool InPlace(const LayerStream& stream) { return stream.spec.act.kind == ActKind::kInPlace; }

LedgerJob LedgerOf(const LayerStream& stream, size_t place) {
  return {stream.call.session->ledger(), stream.spec.act.ledger_slot,
          stream.progress.counts_per_unit,
          static_cast<uint32_t>(stream.progress.plan.cache.layers.size()),
          static_cast<uint32_t>(place)};
}

// ---- open ---------------------------------------------------------------------------------------

absl::Status Open(const JobContext& context, LayerStream& stream, Answer& answer) {
  const CompressSpec& spec = stream.spec;
  KVTRIAGE_RETURN_IF_ERROR(CheckFences(*stream.sequences, spec));
  KVTRIAGE_RETURN_IF_ERROR(CheckDrafts(*stream.sequences, spec));
  const Stopwatch watch;
  CompressPlan plan;
  plan.pins = PinSet(context.device);
  Session& session = *stream.call.session;
  KVTRIAGE_RETURN_IF_ERROR(PlanCompress(session.memory(), session.ledger(), spec, plan));
  if (context.observer != nullptr) context.observer->OnStage(Stage::kPlan, watch.seconds());
  KVTRIAGE_ASSIGN_OR_RETURN(const uint64_t bytes, AnswerBound(spec, plan));
  if (bytes > context.limits.max_response_bytes) {
    return Error(ErrorReason::kResultTooLarge, "output", "the answer would be too large, in bytes")
        .Got(bytes)
        .Limit(context.limits.max_response_bytes);
  }
  stream.progress.counts_per_unit = CountsPerUnit(spec, plan.cache);
  stream.progress.bytes_moved.resize(spec.sequences.size());
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    KVTRIAGE_ASSIGN_OR_RETURN(const bool noop, IsNoop(spec, plan, i));
    stream.progress.noop.push_back(noop);
  }
  if (spec.keep_state) {
    KVTRIAGE_RETURN_IF_ERROR(CheckAllLayers(plan));
    KVTRIAGE_RETURN_IF_ERROR(CheckScoreRoom(*stream.sequences, spec.sequences));
    KVTRIAGE_ASSIGN_OR_RETURN(stream.progress.leases, ReserveSums(*stream.sequences, plan));
  }
  FillHead(spec, plan, std::get<CompressAnswer>(answer.body));
  plan.pins = PinSet();
  stream.progress.plan = std::move(plan);
  if (!InPlace(stream)) return absl::OkStatus();
  stream.progress.slot_open = true;
  OpenSlot(LedgerOf(stream, 0), wire::LedgerOp::kCompressLayers, IdempotencyKey{}, stream.id,
           stream.progress.plan);
  return absl::OkStatus();
}

// ---- one layer ----------------------------------------------------------------------------------

absl::Status Move(LayerStream& stream, const CompressSpec& spec, size_t place,
                  const CompressAnswer& answer, CompressRun& run) {
  stream.progress.touched.insert(static_cast<uint32_t>(place));
  const MoveReport report = run.Move(InPlace(stream) ? LedgerOf(stream, place) : LedgerJob());
  for (size_t i = 0; i < report.sequences; ++i) {
    const bool writes = spec.act.kind != ActKind::kSelectOnly && !run.results()[i].noop;
    stream.progress.moved |= writes && InPlace(stream);
    stream.progress.bytes_moved[i] += report.bytes_moved[i];
    run.Complete(i, answer.sequences[i].kv_revision + (writes ? 1 : 0));
  }
  for (RowSums& seed : run.seeds()) {
    stream.progress.sums[static_cast<uint32_t>(place)].push_back(std::move(seed.layers.front()));
  }
  if (report.status.ok()) return absl::OkStatus();
  stream.progress.moved |= InPlace(stream);
  return run.MoveFailed(report);
}

// Renumbered layers share one next position, so they keep the same count.
absl::Status CheckLengths(const LayerStream& stream, const CompressAnswer& layer) {
  if (!stream.spec.act.renumber || stream.progress.done.empty()) return absl::OkStatus();
  const auto& first = std::get<CompressAnswer>(stream.progress.done.begin()->second->body);
  for (size_t i = 0; i < layer.sequences.size(); ++i) {
    if (layer.sequences[i].kept == first.sequences[i].kept) continue;
    return Error(ErrorReason::kLengthsUnequal, "act.renumber",
                 "one next position needs the same count in all layers")
        .Index(i)
        .Got(layer.sequences[i].kept)
        .Limit(first.sequences[i].kept);
  }
  return absl::OkStatus();
}

absl::Status RunLayer(const JobContext& context, LayerStream& stream, size_t place,
                      Answer& answer) {
  const CompressSpec spec = SpecOfLayer(stream.spec, stream.progress.plan.cache, place);
  CompressRun run(context, *stream.call.session, spec, answer);
  KVTRIAGE_RETURN_IF_ERROR(run.Plan());
  KVTRIAGE_RETURN_IF_ERROR(run.Triage());
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    if (!stream.progress.noop[i]) run.CountAsChanged(i);
  }
  KVTRIAGE_RETURN_IF_ERROR(run.Prepare());
  KVTRIAGE_RETURN_IF_ERROR(CheckLengths(stream, std::get<CompressAnswer>(answer.body)));
  return Move(stream, spec, place, std::get<CompressAnswer>(answer.body), run);
}

// A layer that an earlier stream has done: what it did is done in this one, too.
void Adopt(LayerStream& stream, size_t place, const Answer& stored) {
  if (!InPlace(stream)) return;
  stream.progress.touched.insert(static_cast<uint32_t>(place));
  const auto& answer = std::get<CompressAnswer>(stored.body);
  std::vector<TriageResult> results;
  for (const SequenceOutcome& outcome : answer.sequences) results.push_back(outcome.triage);
  NoteMoved(LedgerOf(stream, place), stream.progress.plan.cache.layers[place], results);
  stream.progress.moved |= std::any_of(results.begin(), results.end(),
                                       [](const TriageResult& result) { return !result.noop; });
}

absl::Status Layer(const JobContext& context, const Job& job, Answer& answer) {
  const size_t place = job.stream->PlaceOf(job.layer);
  if (job.stored == nullptr) return RunLayer(context, *job.stream, place, answer);
  Adopt(*job.stream, place, *job.stored);
  return absl::OkStatus();
}

// ---- close --------------------------------------------------------------------------------------

// Units that no layer touched, and the slot.
void CloseSlot(const LayerStream& stream) {
  if (!stream.progress.slot_open) return;
  for (size_t place = 0; place < stream.progress.plan.cache.layers.size(); ++place) {
    if (stream.progress.touched.contains(static_cast<uint32_t>(place))) continue;
    NoteUnharmed(LedgerOf(stream, place), stream.spec.sequences.size());
  }
  stream.call.session->ledger()->Close(stream.spec.act.ledger_slot);
}

// What the stream leaves of a sequence's running scores, or those that it begins. A layer that an
// earlier stream has done has left no sums: then there is nothing to go on with.
void NoteScores(const JobContext& context, LayerStream& stream, size_t i, SequenceEffect effect,
                const TriageResult& result) {
  const CompressSpec& spec = stream.spec;
  const SequenceSpec& sequence = spec.sequences[i];
  SequenceTable& table = *stream.sequences;
  LayerProgress& progress = stream.progress;
  if (spec.keep_state && progress.sums.size() == progress.plan.cache.layers.size()) {
    RowSums sums;
    sums.columns = static_cast<uint32_t>(sequence.physical_len);
    for (auto& [place, layer] : progress.sums) sums.layers.push_back(std::move(layer[i]));
    SeedScores(table, std::move(sums), std::move(progress.leases[i]), effect, sequence, spec.policy,
               result, context.observer);
    return;
  }
  if (spec.keep_state) {
    if (context.observer != nullptr) context.observer->OnScoresDropped();
    table.SetScores(sequence.sequence_id, nullptr);
    return;
  }
  KeepScores(table, table.ScoresOf(sequence.sequence_id, sequence.generation), effect, sequence,
             result, context.observer);
}

absl::Status Close(const JobContext& context, LayerStream& stream, Answer& answer) {
  CloseSlot(stream);
  const CompressSpec& spec = stream.spec;
  if (!stream.broken.ok()) {
    // Its layers differ in length now, so nothing that we know of a sequence holds any more.
    if (stream.progress.moved) {
      for (const SequenceSpec& sequence : spec.sequences) {
        stream.sequences->Forget(sequence.sequence_id);
      }
    }
    return stream.broken;
  }
  answer = WholeAnswer(spec, stream.progress);
  auto& whole = std::get<CompressAnswer>(answer.body);
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    SequenceOutcome& outcome = whole.sequences[i];
    const SequenceEffect effect = EffectOf(spec.act.kind, outcome.triage.noop);
    outcome.kv_revision = stream.sequences->Record(spec.sequences[i], effect, outcome.kept,
                                                   PositionsOf(spec, outcome.triage));
    NoteScores(context, stream, i, effect, outcome.triage);
    if (context.observer == nullptr) continue;
    SequenceWrites writes;
    writes.longest = static_cast<uint32_t>(outcome.kept);
    writes.blocks_used = outcome.blocks_used;
    TellDecision(*context.observer, spec, stream.progress.plan, stream.progress.plan.sequences[i],
                 outcome.triage, writes, /*failed=*/false, stream.progress.bytes_moved[i]);
  }
  PackKept(whole);
  return absl::OkStatus();
}

// What a call names in its own fields is named in the stream's first message.
absl::Status OfOpen(absl::Status status) {
  const auto info = GetErrorInfo(status);
  return info && !info->field.empty() ? WithFieldPrefix(status, "open.") : status;
}

}  // namespace

absl::Status RunLayerStep(const JobContext& context, const Job& job, Answer& answer) {
  switch (job.step) {
    case LayerStep::kOpen:
      return OfOpen(Open(context, *job.stream, answer));
    case LayerStep::kLayer:
      return OfOpen(Layer(context, job, answer));
    case LayerStep::kClose:
      return Close(context, *job.stream, answer);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
