#include "service/engine/rewind.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "kernels/core/error.h"
#include "service/engine/running_scores.h"

namespace kvtriage {

absl::Status RunRewind(const Job& job, Answer& answer) {
  const auto& spec = std::get<RewindSpec>(job.spec);
  SequenceTable& table = *job.sequences;
  const std::optional<uint32_t> generation = table.GenerationOf(spec.sequence_id);
  if (generation && spec.generation < *generation) {
    return Error(ErrorReason::kSequenceStale, "generation", "older than the one we know")
        .Got(spec.generation)
        .Limit(*generation);
  }
  const auto known = table.ScoresOf(spec.sequence_id, spec.generation);
  if (known == nullptr) {
    return Error(ErrorReason::kSequenceUnknown, "sequence_id", "no running scores");
  }
  if (spec.rows > known->drafts) {
    return Error(ErrorReason::kRewindTooFar, "rows", "more than the outstanding draft rows")
        .Got(spec.rows)
        .Limit(known->drafts);
  }
  auto next = std::make_shared<RunningScores>(*known);
  next->drafts -= spec.rows;
  next->rows -= spec.rows;
  if (next->drafts == 0) next->draft = nullptr;
  next->lease->Resize(next->bytes());
  answer.body = RewindAnswer{next->drafts, next->rows};
  table.TakeBack(spec.sequence_id, spec.rows);
  table.SetScores(spec.sequence_id, std::move(next));
  return absl::OkStatus();
}

}  // namespace kvtriage
