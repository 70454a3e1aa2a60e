#include "service/engine/fences.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "service/engine/plan_tables.h"

namespace kvtriage {

absl::Status CheckFences(SequenceTable& sequences, const CompressSpec& spec) {
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const absl::Status status = sequences.Check(spec.sequences[i]);
    if (!status.ok()) return WithFieldPrefix(status, SequenceField(i, ""));
    if (!spec.act.renumber) continue;
    const absl::Status positions = sequences.CheckPositions(spec.sequences[i]);
    if (!positions.ok()) return WithFieldPrefix(positions, SequenceField(i, ""));
  }
  return absl::OkStatus();
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

PositionEffect PositionsOf(const CompressSpec& spec, const TriageResult& result) {
  if (spec.act.renumber) return PositionEffect::kRenumbered;
  const auto& kept = result.kept;
  const bool same =
      std::all_of(kept.begin(), kept.end(), [&](const auto& list) { return list == kept.front(); });
  return same ? PositionEffect::kSame : PositionEffect::kDiffer;
}

}  // namespace kvtriage
