#include "service/engine/compress_job.h"

#include <variant>

#include "kernels/core/status_macros.h"
#include "service/engine/fences.h"
#include "service/engine/planner.h"

namespace kvtriage {
namespace {

LedgerJob LedgerOf(const Job& job, const CompressSpec& spec, const CompressRun& run) {
  const PlanCache& cache = run.plan().cache;
  return {job.call.session->ledger(), spec.act.ledger_slot, CountsPerUnit(spec, cache),
          static_cast<uint32_t>(cache.layers.size()), 0};
}

MoveReport Move(const Job& job, const CompressSpec& spec, CompressRun& run) {
  if (spec.act.kind != ActKind::kInPlace) return run.Move({});
  const LedgerJob ledger = LedgerOf(job, spec, run);
  MoveReport report = run.Move(ledger);
  ledger.ledger->Close(ledger.slot);
  return report;
}

}  // namespace

void OpenCompress(const Job& job, const CompressSpec& spec, const CompressRun& run) {
  if (spec.act.kind != ActKind::kInPlace) return;
  OpenSlot(LedgerOf(job, spec, run), wire::LedgerOp::kCompress, spec.header.key, job.id,
           run.plan());
}

absl::Status ApplyCompress(const Job& job, const CompressSpec& spec, const CompressAnswer& answer,
                           CompressRun& run) {
  const ActKind act = spec.act.kind;
  const MoveReport report = Move(job, spec, run);
  run.ReportDecisions(report);
  if (!report.status.ok() && act == ActKind::kCopy) return run.MoveFailed(report);
  for (size_t i = 0; i < report.sequences; ++i) {
    const SequenceEffect effect = EffectOf(act, run.results()[i].noop);
    const PositionEffect positions = PositionsOf(spec, run.results()[i]);
    run.Complete(
        i, job.sequences->Record(spec.sequences[i], effect, answer.sequences[i].kept, positions));
  }
  if (report.status.ok()) return absl::OkStatus();
  // The damaged sequence is no longer what we know of it.
  job.sequences->Forget(spec.sequences[report.sequences].sequence_id);
  return run.MoveFailed(report);
}

absl::Status RunCompress(const JobContext& context, const Job& job, Answer& answer) {
  const auto& spec = std::get<CompressSpec>(job.spec);
  CompressRun run(context, *job.call.session, spec, answer);
  KVTRIAGE_RETURN_IF_ERROR(CheckFences(*job.sequences, spec));
  KVTRIAGE_RETURN_IF_ERROR(run.Plan());
  KVTRIAGE_RETURN_IF_ERROR(run.Triage());
  KVTRIAGE_RETURN_IF_ERROR(run.Prepare());
  OpenCompress(job, spec, run);
  return ApplyCompress(job, spec, std::get<CompressAnswer>(answer.body), run);
}

}  // namespace kvtriage
