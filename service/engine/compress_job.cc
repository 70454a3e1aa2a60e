#include "service/engine/compress_job.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/status_macros.h"
#include "service/engine/fences.h"
#include "service/engine/kept_scores.h"
#include "service/engine/planner.h"

namespace kvtriage {

namespace {

LedgerJob LedgerOf(const Job& job, const CompressSpec& spec, const CompressRun& run) {
  const PlanCache& cache = run.plan().cache;
  return {job.call.session->ledger(), spec.act.ledger_slot, CountsPerUnit(spec, cache),
          static_cast<uint32_t>(cache.layers.size()), 0};
}

void OpenFor(wire::LedgerOp op, const Job& job, const CompressSpec& spec, const CompressRun& run) {
  if (spec.act.kind != ActKind::kInPlace) return;
  OpenSlot(LedgerOf(job, spec, run), op, spec.header.key, job.id, run.plan());
}

// The slot is open.
MoveReport MoveAndClose(const Job& job, const CompressSpec& spec, CompressRun& run) {
  if (spec.act.kind != ActKind::kInPlace) return run.Move({});
  const LedgerJob ledger = LedgerOf(job, spec, run);
  MoveReport report = run.Move(ledger);
  ledger.ledger->Close(ledger.slot);
  return report;
}

// What the call leaves of a sequence's running scores, or those that it begins.
void NoteScores(EngineObserver* observer, const Job& job, const CompressSpec& spec,
                CompressRun& run, ScoreLeases& leases, size_t i, SequenceEffect effect) {
  const SequenceSpec& sequence = spec.sequences[i];
  SequenceTable& table = *job.sequences;
  if (spec.keep_state) {
    SeedScores(table, std::move(run.seeds()[i]), std::move(leases[i]), effect, sequence,
               spec.policy, run.results()[i], observer);
    return;
  }
  KeepScores(table, table.ScoresOf(sequence.sequence_id, sequence.generation), effect, sequence,
             run.results()[i], observer);
}

}  // namespace

MoveReport MoveWithSlot(const Job& job, const CompressSpec& spec, wire::LedgerOp op,
                        CompressRun& run) {
  OpenFor(op, job, spec, run);
  return MoveAndClose(job, spec, run);
}

void OpenCompress(const Job& job, const CompressSpec& spec, const CompressRun& run) {
  OpenFor(wire::LedgerOp::kCompress, job, spec, run);
}

absl::Status ApplyCompress(EngineObserver* observer, const Job& job, const CompressSpec& spec,
                           CompressAnswer& answer, CompressRun& run, ScoreLeases leases) {
  const ActKind act = spec.act.kind;
  const MoveReport report = MoveAndClose(job, spec, run);
  run.ReportDecisions(report);
  if (!report.status.ok() && act == ActKind::kCopy) return run.MoveFailed(report);
  for (size_t i = 0; i < report.sequences; ++i) {
    const SequenceEffect effect = EffectOf(act, run.results()[i].noop);
    const PositionEffect positions = PositionsOf(spec, run.results()[i]);
    const uint32_t revision =
        job.sequences->Record(spec.sequences[i], effect, answer.sequences[i].kept, positions);
    NoteScores(observer, job, spec, run, leases, i, effect);
    run.Complete(i, revision);
  }
  if (report.status.ok()) {
    PackKept(answer);
    return absl::OkStatus();
  }
  // The damaged sequence is no longer what we know of it.
  job.sequences->Forget(spec.sequences[report.sequences].sequence_id);
  return run.MoveFailed(report);
}

absl::Status RunCompress(const JobContext& context, const Job& job, Answer& answer) {
  const auto& spec = std::get<CompressSpec>(job.spec);
  CompressRun run(context, *job.call.session, spec, answer);
  KVTRIAGE_RETURN_IF_ERROR(CheckFences(*job.sequences, spec));
  KVTRIAGE_RETURN_IF_ERROR(CheckDrafts(*job.sequences, spec));
  KVTRIAGE_RETURN_IF_ERROR(run.Plan());
  KVTRIAGE_ASSIGN_OR_RETURN(auto standing, StandingScores(*job.sequences, spec, run.plan().cache));
  run.ScoreBy(std::move(standing));
  ScoreLeases leases;
  if (spec.keep_state) {
    KVTRIAGE_RETURN_IF_ERROR(CheckAllLayers(run.plan()));
    KVTRIAGE_RETURN_IF_ERROR(CheckScoreRoom(*job.sequences, spec.sequences));
    KVTRIAGE_ASSIGN_OR_RETURN(leases, ReserveSums(*job.sequences, run.plan()));
  }
  KVTRIAGE_RETURN_IF_ERROR(run.Triage());
  KVTRIAGE_RETURN_IF_ERROR(run.Prepare());
  OpenCompress(job, spec, run);
  return ApplyCompress(context.observer, job, spec, std::get<CompressAnswer>(answer.body), run,
                       std::move(leases));
}

}  // namespace kvtriage
