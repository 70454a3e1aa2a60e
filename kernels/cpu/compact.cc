#include "kernels/cpu/compact.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/head_move.h"
#include "kernels/cpu/row_cursor.h"

namespace kvtriage {
namespace {

// Moves below this stay in the caches, where plain stores are faster.
constexpr uint64_t kStreamBytes = uint64_t{1} << 20;

// kept ascends, so once one row has moved, all later ones do.
uint32_t RowsInPlace(const MoveRequest& request, uint32_t head) {
  const std::span<const int32_t> kept = request.kept[head];
  RowCursor sources(request.from, request.from_rows, head);
  RowCursor targets(request.to, request.to_rows, head);
  uint32_t j = 0;
  while (j < kept.size() && sources.At(static_cast<uint64_t>(kept[j])) == targets.At(j)) ++j;
  return j;
}

void MoveHead(const HeadMove& move) {
  const ViewLayout& source = move.request->from.layout;
  const ViewLayout& target = move.request->to.layout;
  if (source.contiguous_rows() && target.contiguous_rows()) return MoveContiguousRows(move);
  if (target.slot_stride == ElementBytes(target.dtype)) return MoveToLines(move);
  MoveElements(move);
}

}  // namespace

void MoveElements(const HeadMove& move) {
  const MoveRequest& request = *move.request;
  const ViewLayout& source = request.from.layout;
  const ViewLayout& target = request.to.layout;
  const std::span<const int32_t> kept = move.kept();
  const uint64_t size = ElementBytes(source.dtype);
  RowCursor sources(request.from, request.from_rows, move.head);
  RowCursor targets(request.to, request.to_rows, move.head);
  for (size_t j = move.first; j < kept.size(); ++j) {
    const std::byte* from = sources.At(static_cast<uint64_t>(kept[j]));
    std::byte* to = targets.At(j);
    for (uint64_t e = 0; e < target.row_elems; ++e) {
      std::memcpy(to + e * target.elem_stride, from + e * source.elem_stride, size);
    }
  }
}

void MoveRows(std::span<const MoveRequest> requests, ThreadTeam& team, MoveResult& result) {
  std::vector<HeadMove> moves;
  uint64_t bytes = 0;
  for (const MoveRequest& request : requests) {
    for (uint32_t head = 0; head < request.kept.size(); ++head) {
      const uint32_t first = RowsInPlace(request, head);
      if (first == request.kept[head].size()) continue;
      moves.push_back({.request = &request, .head = head, .first = first});
      bytes += (request.kept[head].size() - first) * request.from.layout.row_bytes();
    }
  }
  for (HeadMove& move : moves) move.stream = bytes >= kStreamBytes;
  team.Run(moves.size(), [&](size_t item, int) { MoveHead(moves[item]); });
  result.bytes_written = bytes;
}

}  // namespace kvtriage
