#include "service/engine/rerotate.h"

#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/kept_scores.h"
#include "service/engine/move.h"
#include "service/engine/one_sequence.h"
#include "service/engine/plan_writes.h"
#include "service/engine/rotation.h"
#include "service/engine/stopwatch.h"

namespace kvtriage {
namespace {

class RerotateRun {
 public:
  RerotateRun(const JobContext& context, const Job& job, Answer& answer)
      : context_(context),
        job_(job),
        spec_(std::get<RerotateSpec>(job.spec)),
        whole_(OneSequence(spec_.cache_id, spec_.layers, spec_.sequence, spec_.act)),
        copy_(spec_.act.kind == ActKind::kCopy),
        answer_(answer) {}

  absl::Status Run() {
    KVTRIAGE_RETURN_IF_ERROR(Plan());
    KVTRIAGE_RETURN_IF_ERROR(CheckWrites());
    KVTRIAGE_RETURN_IF_ERROR(context_.stop());  // from here on nothing stops the job
    return Apply();
  }

 private:
  absl::Status Plan() {
    KVTRIAGE_RETURN_IF_ERROR(PlanOneSequence(job_, whole_, plan_));
    // The queries of drafts would meet keys that have turned since.
    KVTRIAGE_RETURN_IF_ERROR(AsOneSequence(CheckDrafts(*job_.sequences, whole_)));
    KVTRIAGE_RETURN_IF_ERROR(CheckTurnable());
    const absl::Status positions = job_.sequences->CheckPositions(spec_.sequence);
    if (!positions.ok()) return WithFieldPrefix(positions, "sequence.");
    const uint64_t rows = spec_.sequence.physical_len;
    KVTRIAGE_RETURN_IF_ERROR(
        CheckPlanes(plan_.cache, spec_.sequence.positions, rows, "sequence.positions"));
    new_positions_ = spec_.new_positions;
    KVTRIAGE_RETURN_IF_ERROR(CheckPlanes(plan_.cache, new_positions_, spec_.rows, "new_positions"));
    rotation_.first_row = spec_.first_row;
    rotation_.count = spec_.rows;
    rotation_.from = PositionsFrom(spec_.sequence.positions, rows, spec_.first_row);
    rotation_.to = PositionsFrom(new_positions_, spec_.rows, 0);
    rotation_.mode = spec_.angles;
    turned_ = TurnedRows(plan_.cache, rotation_);
    return absl::OkStatus();
  }

  // A key may not turn where the engine derives the mask from a row's place.
  absl::Status CheckTurnable() const {
    for (const PlanLayer& layer : plan_.cache.layers) {
      if (layer.movable || layer.rope == nullptr) continue;
      return Error(ErrorReason::kLayerNotMovable, "layers_le",
                   "the engine derives this layer's mask or bias from the place of a row")
          .Index(layer.index);
    }
    return absl::OkStatus();
  }

  absl::Status CheckWrites() {
    const PlanSequence& sequence = plan_.sequences.front();
    if (!copy_) {
      return AsOneSequence(CheckShared(sequence, 0, PlanRowWrites(plan_.cache, sequence, turned_)));
    }
    copied_.kept.emplace_back(spec_.rows);
    std::iota(copied_.kept.front().begin(), copied_.kept.front().end(),
              static_cast<int32_t>(spec_.first_row));
    copied_.layers.resize(plan_.cache.layers.size());
    writes_ = PlanWrites(plan_, sequence, copied_, ActKind::kCopy);
    return AsOneSequence(CheckDestinations(plan_, {&writes_, 1}));
  }

  absl::Status Apply() {
    const Stopwatch watch;
    const bool nothing = copy_ ? spec_.rows == 0 : turned_.empty();
    const absl::Status status = nothing ? absl::OkStatus() : copy_ ? Copy() : TurnInPlace();
    answer_.timing.move = watch.micros();
    if (!status.ok()) {
      if (!copy_) job_.sequences->Forget(spec_.sequence.sequence_id);
      return WriteFailed(status, "sequence.table", "rotating rows failed",
                         copy_ ? CacheState::kUnharmed : CacheState::kSeeLedger);
    }
    const SequenceEffect effect = nothing ? SequenceEffect::kNone
                                  : copy_ ? SequenceEffect::kCopied
                                          : SequenceEffect::kMoved;
    auto& body = answer_.body.emplace<RerotateAnswer>();
    body.kv_revision = job_.sequences->Record(
        spec_.sequence, effect, copy_ ? spec_.rows : AllRows(), PositionEffect::kSame);
    body.rows_rotated = turned_.size();
    if (context_.observer != nullptr) context_.observer->OnBlendWrite({0, bytes_});
    return absl::OkStatus();
  }

  absl::Status TurnInPlace() {
    rotation_.rows = {spec_.sequence.table.data(), spec_.sequence.first_slot,
                      static_cast<uint32_t>(AllRows())};
    return WriteInPlace(SlotOf(job_, whole_, plan_), wire::LedgerOp::kRerotate, spec_.header.key,
                        job_.id, plan_, [this] { return Rotate(plan_.cache.layers); });
  }

  absl::Status Copy() {
    KVTRIAGE_ASSIGN_OR_RETURN(bytes_, MoveSequence(context_.backend, plan_, plan_.sequences.front(),
                                                   copied_, writes_, ActKind::kCopy));
    rotation_.rows = {spec_.sequence.destination.data(), spec_.sequence.first_slot, spec_.rows};
    rotation_.first_row = 0;
    return Rotate(plan_.destination.layers);
  }

  absl::Status Rotate(std::span<const PlanLayer> targets) {
    KVTRIAGE_ASSIGN_OR_RETURN(const uint64_t bytes,
                              RotateRows(context_.backend, plan_.cache, targets, rotation_));
    bytes_ += bytes;
    return absl::OkStatus();
  }

  uint64_t AllRows() const { return spec_.sequence.physical_len; }

  const JobContext& context_;
  const Job& job_;
  const RerotateSpec& spec_;
  const CompressSpec whole_;
  const bool copy_;
  Answer& answer_;
  CompressPlan plan_;
  std::optional<PositionsSpec> new_positions_;
  Rotation rotation_;
  std::vector<int32_t> turned_;
  TriageResult copied_;
  SequenceWrites writes_;
  uint64_t bytes_ = 0;
};

}  // namespace

absl::Status RunRerotate(const JobContext& context, const Job& job, Answer& answer) {
  return RerotateRun(context, job, answer).Run();
}

}  // namespace kvtriage
