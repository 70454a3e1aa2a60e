#include "service/engine/fences.h"

#include "kernels/core/error.h"
#include "service/engine/plan_tables.h"

namespace kvtriage {

absl::Status CheckFences(SequenceTable& sequences, const CompressSpec& spec) {
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const absl::Status status = sequences.Check(spec.sequences[i]);
    if (!status.ok()) return WithFieldPrefix(status, SequenceField(i, ""));
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

}  // namespace kvtriage
