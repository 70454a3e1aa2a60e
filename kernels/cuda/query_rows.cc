#include "kernels/cuda/query_rows.h"

#include <span>

#include "kernels/core/score_rules.h"

namespace kvtriage {
namespace {

absl::StatusOr<DeviceQueryRotation> Rotation(const AttentionInput& input, Workspace& workspace,
                                             DeviceInputs& inputs) {
  DeviceQueryRotation made{};
  const QueryRotation& rotation = input.rotation;
  if (rotation.rope == nullptr || rotation.rope->rotary_dim == 0) return made;
  const Rope& rope = *rotation.rope;
  KVTRIAGE_ASSIGN_OR_RETURN(made.speeds, workspace.Upload(std::span<const double>(rope.speeds)));
  made.pairs = rope.rotary_dim / 2;
  made.offset = rope.offset;
  made.half = rope.pairing == RopePairing::kHalf ? 1 : 0;
  for (uint32_t plane = 0, end = 0; plane < 3; ++plane) {
    end += rope.sections[plane];
    made.section_ends[plane] = rope.multi_plane() ? end : made.pairs;
  }
  made.factor = static_cast<float>(rope.attention_factor);
  made.first = rotation.first;
  if (rotation.positions == nullptr) return made;
  made.stride = rotation.stride;
  const size_t numbers = (rope.planes() - 1) * rotation.stride + input.q.rows;
  KVTRIAGE_ASSIGN_OR_RETURN(made.positions, inputs.List({rotation.positions, numbers}));
  return made;
}

}  // namespace

absl::StatusOr<QueryItem> MakeQueryItem(const LayerRows& layer, const AttentionInput& input,
                                        const QueryPick& pick, Workspace& workspace,
                                        DeviceInputs& inputs) {
  QueryItem item{};
  const bool ready = input.source == AttentionSource::kReady;
  KVTRIAGE_ASSIGN_OR_RETURN(item.k, inputs.View(layer.k, layer.sequence));
  if (layer.v.base != nullptr) {
    KVTRIAGE_ASSIGN_OR_RETURN(item.v, inputs.View(layer.v, layer.sequence));
  }
  if (!ready) {
    item.q = OnDevice(input.q);
    item.slopes = OnDevice(input.alibi_slopes);
    KVTRIAGE_ASSIGN_OR_RETURN(item.rotation, Rotation(input, workspace, inputs));
  }
  if (input.source == AttentionSource::kQuery) item.sinks = OnDevice(input.sink_logits);
  if (input.source == AttentionSource::kQueryOutput) item.lse = OnDevice(input.lse);
  if (input.source != AttentionSource::kQuery) item.o = OnDevice(input.o);
  KVTRIAGE_ASSIGN_OR_RETURN(item.limits, inputs.List(input.row_limits));
  item.tokens = layer.sequence.rows;
  item.sliding = layer.sliding_window;
  item.group = layer.q_heads / layer.k.layout.heads;
  item.first_row = SuppliedRows(input) - pick.window_rows;
  item.window_rows = pick.window_rows;
  item.averaged = pick.averaged ? 1 : 0;
  item.lse_base2 = input.lse_base == LseBase::k2 ? 1 : 0;
  item.widened = pick.widened && !ready ? 1 : 0;
  item.reads_keys = ready ? 0 : 1;
  item.reads_values = pick.reads_values ? 1 : 0;
  item.o_elems = item.o.base != nullptr ? input.o.elems : layer.v.layout.row_elems;
  return item;
}

uint32_t AllUnits(const QueryItem& item) {
  return item.averaged != 0 ? item.window_rows : item.window_rows * item.group;
}

uint64_t QueryBytes(const QueryItem& item, uint32_t units, bool outputs) {
  const uint64_t rows = uint64_t{units} * item.rows_per_unit() * item.k.heads;
  const uint64_t floats = (item.widened != 0 ? rows * item.k.row_elems : 0) +
                          (outputs ? uint64_t{units} * item.k.heads * item.o_elems : 0);
  return rows * sizeof(QueryRow) + floats * sizeof(float) + 3 * Workspace::kAlignment;
}

absl::Status TakeQueryRoom(uint32_t begin, uint32_t count, bool outputs, Workspace& workspace,
                           QueryItem& item) {
  item.unit_begin = begin;
  item.unit_count = count;
  const uint64_t rows = uint64_t{item.row_count()} * item.k.heads;
  KVTRIAGE_ASSIGN_OR_RETURN(item.rows, workspace.Take<QueryRow>(rows));
  if (item.widened != 0) {
    KVTRIAGE_ASSIGN_OR_RETURN(item.q_rows, workspace.Take<float>(rows * item.k.row_elems));
  }
  if (outputs) {
    KVTRIAGE_ASSIGN_OR_RETURN(item.o_rows,
                              workspace.Take<float>(uint64_t{count} * item.k.heads * item.o_elems));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
