#include "service/engine/draft_rows.h"

#include "kernels/core/dtype.h"
#include "kernels/core/status_macros.h"
#include "service/engine/read_rows.h"

namespace kvtriage {
namespace {

uint64_t RowFloats(const TensorView& view, uint32_t rows) {
  return view ? uint64_t{rows} * view.heads * view.elems : 0;
}

TensorView ViewOf(const std::vector<float>& values, uint32_t rows, uint32_t heads) {
  if (values.empty()) return {};
  const auto elems = static_cast<uint32_t>(values.size() / (uint64_t{rows} * heads));
  const uint64_t row_bytes = uint64_t{heads} * elems * sizeof(float);
  return {reinterpret_cast<const std::byte*>(values.data()),
          DType::kF32,
          rows,
          heads,
          elems,
          row_bytes,
          elems * sizeof(float),
          sizeof(float)};
}

// Layers turn by one list of positions; a rope with planes has three of them.
const QueryRotation* RotationIn(const std::vector<TriageLayer>& layers) {
  const QueryRotation* found = nullptr;
  for (const TriageLayer& layer : layers) {
    const QueryRotation& rotation = layer.input.rotation;
    if (rotation.rope == nullptr) continue;
    if (found == nullptr || rotation.rope->planes() > found->rope->planes()) found = &rotation;
  }
  return found;
}

std::vector<int32_t> CopyPositions(const std::vector<TriageLayer>& layers, uint32_t given,
                                   uint32_t rows) {
  std::vector<int32_t> positions;
  const QueryRotation* const rotation = RotationIn(layers);
  if (rotation == nullptr) return positions;
  for (uint32_t plane = 0; plane < rotation->rope->planes(); ++plane) {
    for (uint32_t row = given - rows; row < given; ++row) {
      positions.push_back(static_cast<int32_t>(rotation->At(row)[plane]));
    }
  }
  return positions;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DraftRows>> KeepDrafts(const std::vector<TriageLayer>& layers,
                                                            uint32_t rows, DeviceCopier* copier) {
  auto drafts = std::make_shared<DraftRows>();
  drafts->rows = rows;
  const AttentionInput& given = layers.front().input;
  drafts->input.source = given.source;
  drafts->input.scale = given.scale;
  drafts->input.softcap = given.softcap;
  drafts->input.lse_base = given.lse_base;
  drafts->positions = CopyPositions(layers, given.q.rows, rows);
  for (const TriageLayer& layer : layers) {
    const AttentionInput& input = layer.input;
    DraftLayer& kept = drafts->layers.emplace_back();
    KVTRIAGE_ASSIGN_OR_RETURN(kept.q, NewestRows(input.q, rows, copier));
    KVTRIAGE_ASSIGN_OR_RETURN(kept.o, NewestRows(input.o, rows, copier));
    KVTRIAGE_ASSIGN_OR_RETURN(kept.lse, NewestRows(input.lse, rows, copier));
    KVTRIAGE_ASSIGN_OR_RETURN(kept.sink_logits, NewestRows(input.sink_logits, 1, copier));
    KVTRIAGE_ASSIGN_OR_RETURN(kept.alibi_slopes, NewestRows(input.alibi_slopes, 1, copier));
  }
  return drafts;
}

uint64_t DraftBytes(const std::vector<TriageLayer>& layers, uint32_t rows) {
  const QueryRotation* const rotation = RotationIn(layers);
  uint64_t numbers = rotation == nullptr ? 0 : uint64_t{rotation->rope->planes()} * rows;
  for (const TriageLayer& layer : layers) {
    const AttentionInput& input = layer.input;
    numbers += RowFloats(input.q, rows) + RowFloats(input.o, rows) + RowFloats(input.lse, rows) +
               RowFloats(input.sink_logits, 1) + RowFloats(input.alibi_slopes, 1);
  }
  return numbers * sizeof(float);
}

std::vector<TriageLayer> DraftInputs(const DraftRows& drafts, uint32_t rows, const PlanCache& cache,
                                     const std::vector<TriageLayer>& layers) {
  std::vector<TriageLayer> inputs = layers;
  for (size_t l = 0; l < inputs.size(); ++l) {
    const DraftLayer& draft = drafts.layers[l];
    const uint32_t heads = inputs[l].rows.q_heads;
    AttentionInput& input = inputs[l].input;
    input = drafts.input;
    input.q = ViewOf(draft.q, drafts.rows, heads);
    input.o = ViewOf(draft.o, drafts.rows, heads);
    input.lse = ViewOf(draft.lse, drafts.rows, heads);
    for (TensorView* view : {&input.q, &input.o, &input.lse}) {
      if (*view) view->rows = rows;
    }
    input.sink_logits = ViewOf(draft.sink_logits, 1, heads);
    input.alibi_slopes = ViewOf(draft.alibi_slopes, 1, heads);
    if (drafts.positions.empty()) continue;
    input.rotation.rope = cache.layers[l].rope;
    input.rotation.positions = drafts.positions.data();
    input.rotation.stride = drafts.rows;
  }
  return inputs;
}

}  // namespace kvtriage
