#include "kernels/cuda/score_lists.h"

#include <algorithm>

#include "kernels/core/checked_math.h"

namespace kvtriage {
namespace {

// Whether rows are whole pieces of 8 elements, each of which is aligned to its size, 16 at most.
bool WidePieces(const KvView& view) {
  const ViewLayout& layout = view.layout;
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(view.base), layout.block_stride,
                              layout.head_stride, layout.slot_stride};
  return layout.contiguous_rows() && layout.row_elems % 8 == 0 &&
         AccessWidth(numbers) >= std::min<uint64_t>(16, 8 * ElementBytes(layout.dtype));
}

}  // namespace

absl::StatusOr<const ListPiece*> CutIntoPieces(std::span<const uint32_t> rows, uint32_t piece_rows,
                                               Workspace& workspace) {
  std::vector<ListPiece> pieces;
  for (uint32_t list = 0; list < rows.size(); ++list) {
    for (uint64_t row = 0; row < rows[list]; row += piece_rows) {
      pieces.push_back({list, static_cast<uint32_t>(row)});
    }
  }
  return workspace.Upload(std::span<const ListPiece>(pieces));
}

uint32_t CountPieces(std::span<const uint32_t> rows, uint32_t piece_rows) {
  uint64_t pieces = 0;
  for (const uint32_t count : rows) pieces += CeilDiv(count, piece_rows);
  return static_cast<uint32_t>(pieces);
}

absl::StatusOr<ScoreLists> ScoreLists::Make(ScoreRequests requests, bool values,
                                            Workspace& workspace, DeviceInputs& inputs) {
  ScoreLists made;
  std::vector<DeviceView> views;
  for (const ScoreRequest* request : requests) {
    const LayerRows& layer = request->layer;
    KVTRIAGE_ASSIGN_OR_RETURN(views.emplace_back(), inputs.View(layer.k, layer.sequence));
    made.most_elems_ = std::max(made.most_elems_, layer.k.layout.row_elems);
    if (!values) continue;
    KVTRIAGE_ASSIGN_OR_RETURN(views.emplace_back(), inputs.View(layer.v, layer.sequence));
    made.most_elems_ = std::max(made.most_elems_, layer.v.layout.row_elems);
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const DeviceView* on_device,
                            workspace.Upload(std::span<const DeviceView>(views)));
  std::vector<DeviceList> lists;
  std::vector<uint32_t> rows;
  for (const ScoreRequest* request : requests) {
    const LayerRows& layer = request->layer;
    made.first_.push_back(made.rows_);
    DeviceList list{.k = on_device++,
                    .v = values ? on_device++ : nullptr,
                    .k_wide = WidePieces(layer.k) ? 1u : 0u,
                    .v_wide = values && WidePieces(layer.v) ? 1u : 0u,
                    .rows = layer.sequence.rows};
    for (list.head = 0; list.head < layer.k.layout.heads; ++list.head) {
      list.first = made.rows_;
      list.first_piece = made.pieces_;
      lists.push_back(list);
      rows.push_back(list.rows);
      made.rows_ += list.rows;
      made.pieces_ += static_cast<uint32_t>(CeilDiv(list.rows, kPieceRows));
    }
  }
  made.first_.push_back(made.rows_);
  made.lists_ = static_cast<uint32_t>(lists.size());
  KVTRIAGE_ASSIGN_OR_RETURN(made.plan_.lists, workspace.Upload(std::span<const DeviceList>(lists)));
  KVTRIAGE_ASSIGN_OR_RETURN(made.plan_.pieces, CutIntoPieces(rows, kPieceRows, workspace));
  return made;
}

absl::Status ScoreLists::Download(const float* numbers, size_t i, Workspace& workspace,
                                  std::vector<float>& to) const {
  to.resize(first_[i + 1] - first_[i]);
  return workspace.Download<float>(numbers + first_[i], to);
}

}  // namespace kvtriage
