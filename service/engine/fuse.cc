#include "service/engine/fuse.h"

#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/fuse_sources.h"
#include "service/engine/one_sequence.h"
#include "service/engine/plan_writes.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

ActSpec InPlaceAct(uint32_t slot) {
  ActSpec act;
  act.kind = ActKind::kInPlace;
  act.ledger_slot = slot;
  return act;
}

// A Fuse has its ledger slot in a field of its own.
absl::Status AsFuse(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  const bool slot = info && info->field == "act.in_place.ledger_slot";
  return slot ? WithField(status, "in_place.ledger_slot") : status;
}

class FuseRun {
 public:
  FuseRun(const JobContext& context, const Job& job, Answer& answer)
      : context_(context),
        job_(job),
        spec_(std::get<FuseSpec>(job.spec)),
        whole_(OneSequence(spec_.cache_id, spec_.layers, spec_.sequence,
                           InPlaceAct(spec_.ledger_slot))),
        answer_(answer) {}

  absl::Status Run() {
    KVTRIAGE_RETURN_IF_ERROR(AsFuse(PlanOneSequence(job_, whole_, plan_)));
    const uint64_t rows = spec_.full ? spec_.sequence.physical_len : spec_.rows.size();
    if (rows > 0) KVTRIAGE_RETURN_IF_ERROR(PlanRows(rows));
    KVTRIAGE_RETURN_IF_ERROR(context_.stop());  // from here on nothing stops the job
    return Apply(rows);
  }

 private:
  absl::Status PlanRows(uint64_t count) {
    KVTRIAGE_ASSIGN_OR_RETURN(copies_, ResolveFuse(job_.call.session->memory(), spec_, plan_));
    std::vector<int32_t> all;
    if (spec_.full) {
      all.resize(count);
      std::iota(all.begin(), all.end(), 0);
    }
    const PlanSequence& sequence = plan_.sequences.front();
    return AsOneSequence(CheckShared(
        sequence, 0, PlanRowWrites(plan_.cache, sequence, spec_.full ? all : spec_.rows)));
  }

  absl::Status Apply(uint64_t rows) {
    const Stopwatch watch;
    uint64_t bytes = 0;
    if (rows > 0) {
      const absl::Status status =
          WriteInPlace(SlotOf(job_, whole_, plan_), wire::LedgerOp::kFuse, spec_.header.key,
                       job_.id, plan_, [&] { return Write(bytes); });
      if (!status.ok()) {
        job_.sequences->Forget(spec_.sequence.sequence_id);
        return WriteFailed(status, "sequence.table", "writing rows failed", CacheState::kSeeLedger);
      }
    }
    answer_.timing.move = watch.micros();
    auto& body = answer_.body.emplace<FuseAnswer>();
    body.kv_revision = job_.sequences->Record(
        spec_.sequence, rows > 0 ? SequenceEffect::kMoved : SequenceEffect::kNone,
        spec_.sequence.physical_len, PositionEffect::kSame);
    body.rows_written = rows;
    if (context_.observer != nullptr) context_.observer->OnBlendWrite({rows, bytes});
    return absl::OkStatus();
  }

  absl::Status Write(uint64_t& bytes) {
    // Keys first, so that a test can stop the service when some rows are written and some are not.
    const size_t half = copies_.size() / 2;
    const std::span<const RowCopy> all(copies_);
    RowCopyResult keys, values;
    KVTRIAGE_RETURN_IF_ERROR(context_.backend.CopyRows(all.first(half), keys));
    FaultPoint("fuse.mid_rows");
    KVTRIAGE_RETURN_IF_ERROR(context_.backend.CopyRows(all.subspan(half), values));
    bytes = keys.bytes_written + values.bytes_written;
    return absl::OkStatus();
  }

  const JobContext& context_;
  const Job& job_;
  const FuseSpec& spec_;
  const CompressSpec whole_;
  Answer& answer_;
  CompressPlan plan_;
  std::vector<RowCopy> copies_;
};

}  // namespace

absl::Status RunFuse(const JobContext& context, const Job& job, Answer& answer) {
  return FuseRun(context, job, answer).Run();
}

}  // namespace kvtriage
