#include "service/engine/plan_rotation.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_tables.h"

namespace kvtriage {
namespace {

absl::Status CheckPositions(const SequenceSpec& sequence, size_t index, uint32_t planes) {
  if (sequence.rows_count == 0 || sequence.physical_len == 0) return absl::OkStatus();
  if (!sequence.positions) {
    return Error(ErrorReason::kFieldMissing, SequenceField(index, "positions"),
                 "queries from before RoPE need the positions of their rows");
  }
  if (sequence.rows_count > sequence.physical_len) {
    return Error(ErrorReason::kFieldInvalid, SequenceField(index, "rows_count"),
                 "more queries from before RoPE than rows with positions")
        .Got(sequence.rows_count)
        .Limit(sequence.physical_len);
  }
  // A plain count of positions serves every plane.
  if (sequence.positions->first) return absl::OkStatus();
  const uint64_t wanted = sequence.physical_len * planes;
  if (sequence.positions->list.size() == wanted) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, SequenceField(index, "positions"),
               "one position per row and plane of the rotary data")
      .Got(sequence.positions->list.size())
      .Limit(wanted);
}

}  // namespace

absl::Status CheckRotation(const CompressSpec& spec, const PlanCache& cache) {
  if (!spec.inputs.before_rope) return absl::OkStatus();
  const bool given = spec.inputs.source == AttentionSource::kQueryOutput;
  for (const PlanLayer& layer : cache.layers) {
    if (cache.registered->spec.layers[layer.index].rope_index == 0) {
      return Error(ErrorReason::kStageMismatch,
                   given ? "inputs.query_output.stage" : "inputs.query.stage",
                   "the layer carries no rotary data for such queries")
          .Index(layer.index);
    }
    if (layer.rope == nullptr) continue;  // nothing turns
    for (size_t i = 0; i < spec.sequences.size(); ++i) {
      KVTRIAGE_RETURN_IF_ERROR(CheckPositions(spec.sequences[i], i, layer.rope->planes()));
    }
  }
  return absl::OkStatus();
}

QueryRotation RotationOf(const ScoreInputsSpec& inputs, const PlanLayer& layer,
                         const SequenceSpec& sequence) {
  if (!inputs.before_rope || layer.rope == nullptr || !sequence.positions) return {};
  // Row 0 of the inputs is this cached row.
  const uint64_t first_row = sequence.physical_len - sequence.rows_count;
  QueryRotation rotation;
  rotation.rope = layer.rope;
  if (sequence.positions->first) {
    rotation.first = static_cast<int64_t>(*sequence.positions->first + first_row);
  } else {
    rotation.positions = sequence.positions->list.data() + first_row;
    rotation.stride = sequence.physical_len;
  }
  return rotation;
}

}  // namespace kvtriage
