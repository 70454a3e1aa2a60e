#include "kernels/cuda/compact.h"

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/cuda/compact_launch.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"

namespace kvtriage {
namespace {

// How the rows of a move are walked. Moves of one shape share a launch.
struct WordShape {
  uint32_t word_bytes, row_words;
  auto operator<=>(const WordShape&) const = default;
};

bool Contiguous(const MoveRequest& request) {
  return request.from.layout.contiguous_rows() && request.to.layout.contiguous_rows();
}

WordShape ShapeOf(const MoveRequest& request) {
  const ViewLayout& from = request.from.layout;
  const ViewLayout& to = request.to.layout;
  if (!Contiguous(request)) {
    return {static_cast<uint32_t>(ElementBytes(from.dtype)), from.row_elems};
  }
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(request.from.base),
                              reinterpret_cast<uintptr_t>(request.to.base),
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

// The same slots of the same memory: else source and destination share no row.
bool InPlace(const MoveRequest& request) {
  if (request.from.base != request.to.base) return false;
  const SequenceRows& to = request.to_rows;
  if (request.from_rows.first_slot != to.first_slot) return false;
  const uint64_t blocks = CeilDiv(uint64_t{to.first_slot} + to.rows, request.to.layout.block_slots);
  return std::equal(to.table, to.table + blocks, request.from_rows.table);
}

// Rows at the start of the list that stay where they are: kept ascends, so once one row has moved,
// all later ones do.
uint32_t RowsThatStay(const MoveRequest& request, std::span<const int32_t> kept) {
  if (!InPlace(request)) return 0;
  uint32_t j = 0;
  while (j < kept.size() && kept[j] == static_cast<int32_t>(j)) ++j;
  return j;
}

// All moves of one shape.
class MoveGroup {
 public:
  explicit MoveGroup(WordShape shape)
      : shape_(shape),
        tile_rows_(static_cast<uint32_t>(std::clamp<uint64_t>(
            kCompactStagedBytes / (uint64_t{shape.word_bytes} * shape.row_words), 1,
            kCompactTileRows))) {}

  absl::Status Add(const MoveRequest& request, uint32_t head, uint32_t stay, DeviceInputs& inputs) {
    const std::span<const int32_t> kept = request.kept[head];
    const bool contiguous = Contiguous(request);
    const auto stride = [&](const ViewLayout& layout) {
      return contiguous ? uint64_t{shape_.word_bytes} : layout.elem_stride;
    };
    MoveStream stream{};
    KVTRIAGE_ASSIGN_OR_RETURN(stream.from, inputs.Rows(request.from, request.from_rows, head,
                                                       stride(request.from.layout)));
    KVTRIAGE_ASSIGN_OR_RETURN(
        stream.to, inputs.Rows(request.to, request.to_rows, head, stride(request.to.layout)));
    KVTRIAGE_ASSIGN_OR_RETURN(stream.kept, inputs.List(kept));
    stream.rows = static_cast<uint32_t>(kept.size());
    stream.first_tile = tiles_;
    stream.in_place = InPlace(request) ? 1 : 0;
    streams_.push_back(stream);
    tiles_ += static_cast<uint32_t>(CeilDiv(kept.size(), tile_rows_));
    // Tiles in which every row stays are never waited for: what they hold is read by nobody else.
    first_moving_.push_back(stay / tile_rows_);
    return absl::OkStatus();
  }

  absl::Status Launch(Workspace& workspace) {
    const std::vector<MoveTile> order = TicketOrder();
    CompactArgs args{};
    KVTRIAGE_ASSIGN_OR_RETURN(args.streams,
                              workspace.Upload(std::span<const MoveStream>(streams_)));
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

 private:
  // Tile 0 of every stream, then tile 1 of every stream, ...: tiles that wait for each other are
  // far apart in time.
  std::vector<MoveTile> TicketOrder() const {
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

  const WordShape shape_;
  const uint32_t tile_rows_;
  std::vector<MoveStream> streams_;
  std::vector<uint32_t> first_moving_;
  uint32_t tiles_ = 0;
};

}  // namespace

absl::Status CudaMoveRows(std::span<const MoveRequest> requests, Workspace& workspace,
                          MoveResult& result) {
  result = {};
  DeviceInputs inputs(workspace);
  std::map<WordShape, MoveGroup> groups;
  for (const MoveRequest& request : requests) {
    const WordShape shape = ShapeOf(request);
    for (uint32_t head = 0; head < request.kept.size(); ++head) {
      const uint32_t stay = RowsThatStay(request, request.kept[head]);
      const uint64_t moving = request.kept[head].size() - stay;
      if (moving == 0) continue;
      result.bytes_written += moving * request.from.layout.row_bytes();
      MoveGroup& group = groups.try_emplace(shape, shape).first->second;
      KVTRIAGE_RETURN_IF_ERROR(group.Add(request, head, stay, inputs));
    }
  }
  for (auto& [shape, group] : groups) KVTRIAGE_RETURN_IF_ERROR(group.Launch(workspace));
  return workspace.Finish();
}

}  // namespace kvtriage
