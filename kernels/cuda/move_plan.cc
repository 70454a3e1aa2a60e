#include "kernels/cuda/move_plan.h"

#include <algorithm>

#include "kernels/core/checked_math.h"
#include "kernels/cuda/compact_launch.h"
#include "kernels/cuda/cuda_status.h"

namespace kvtriage {
namespace {

bool Contiguous(const KvView& from, const KvView& to) {
  return from.layout.contiguous_rows() && to.layout.contiguous_rows();
}

}  // namespace

WordShape ShapeOf(const KvView& from_view, const KvView& to_view) {
  const ViewLayout& from = from_view.layout;
  const ViewLayout& to = to_view.layout;
  if (!Contiguous(from_view, to_view)) {
    return {static_cast<uint32_t>(ElementBytes(from.dtype)), from.row_elems};
  }
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(from_view.base),
                              reinterpret_cast<uintptr_t>(to_view.base),
                              from.block_stride,
                              from.head_stride,
                              from.slot_stride,
                              to.block_stride,
                              to.head_stride,
                              to.slot_stride,
                              from.row_bytes()};
  const uint32_t width = AccessWidth(numbers);
  return {width, static_cast<uint32_t>(from.row_bytes() / width)};
}

MovePlan::MovePlan(WordShape shape)
    : shape_(shape),
      tile_rows_(static_cast<uint32_t>(
          std::clamp<uint64_t>(kCompactStagedBytes / (uint64_t{shape.word_bytes} * shape.row_words),
                               1, kCompactTileRows))) {}

absl::Status MovePlan::Add(const HeadRows& rows, DeviceInputs& inputs) {
  const bool contiguous = Contiguous(rows.from, rows.to);
  const auto stride = [&](const KvView& view) {
    return contiguous ? uint64_t{shape_.word_bytes} : view.layout.elem_stride;
  };
  MoveStream stream{};
  KVTRIAGE_ASSIGN_OR_RETURN(stream.from,
                            inputs.Rows(rows.from, rows.from_rows, rows.head, stride(rows.from)));
  KVTRIAGE_ASSIGN_OR_RETURN(stream.to,
                            inputs.Rows(rows.to, rows.to_rows, rows.head, stride(rows.to)));
  KVTRIAGE_ASSIGN_OR_RETURN(stream.kept, inputs.List(rows.kept));
  KVTRIAGE_ASSIGN_OR_RETURN(stream.put, inputs.List(rows.put));
  stream.rows = rows.rows;
  stream.first_tile = tiles_;
  stream.in_place = rows.in_place ? 1 : 0;
  streams_.push_back(stream);
  tiles_ += static_cast<uint32_t>(CeilDiv(rows.rows, tile_rows_));
  // Tiles in which every row stays are never waited for: what they hold is read by nobody else.
  first_moving_.push_back(rows.stay / tile_rows_);
  return absl::OkStatus();
}

// Tile 0 of every stream, then tile 1 of every stream, ...: tiles that wait for each other are far
// apart in time.
std::vector<MoveTile> MovePlan::TicketOrder() const {
  std::vector<MoveTile> order;
  for (uint32_t tile = 0, open = 1; open > 0; ++tile) {
    open = 0;
    for (uint32_t s = 0; s < streams_.size(); ++s) {
      const auto tiles = static_cast<uint32_t>(CeilDiv(streams_[s].rows, tile_rows_));
      if (tile >= tiles) continue;
      ++open;
      if (tile >= first_moving_[s]) order.push_back({s, tile});
    }
  }
  return order;
}

absl::Status MovePlan::Launch(Workspace& workspace) const {
  const std::vector<MoveTile> order = TicketOrder();
  if (order.empty()) return absl::OkStatus();
  CompactArgs args{};
  KVTRIAGE_ASSIGN_OR_RETURN(args.streams, workspace.Upload(std::span<const MoveStream>(streams_)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.tiles, workspace.Upload(std::span<const MoveTile>(order)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.ticket, workspace.TakeZeroed<uint32_t>(1));
  KVTRIAGE_ASSIGN_OR_RETURN(args.read, workspace.TakeZeroed<uint32_t>(tiles_));
  args.tile_count = static_cast<uint32_t>(order.size());
  args.tile_rows = tile_rows_;
  args.row_words = shape_.row_words;
  // Enough to fill the device; more would only queue for tickets.
  const uint32_t most = static_cast<uint32_t>(workspace.multiprocessors()) * 8;
  return CudaStatus(
      LaunchCompact(args, shape_.word_bytes, std::min(args.tile_count, most), workspace.stream()),
      "compact.launch");
}

}  // namespace kvtriage
