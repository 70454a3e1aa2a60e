#include "kernels/cpu/fuse.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/row_cursor.h"

namespace kvtriage {
namespace {

constexpr uint32_t kChunkRows = 256;

// Some rows of one head of one copy.
struct Piece {
  const RowCopy* copy;
  uint32_t head, begin, end;
};

uint64_t RowOf(std::span<const int32_t> list, uint32_t j) {
  return list.empty() ? j : static_cast<uint64_t>(list[j]);
}

void CopyElements(const ViewLayout& source, const std::byte* from, const ViewLayout& target,
                  std::byte* to) {
  const uint64_t size = ElementBytes(source.dtype);
  for (uint64_t e = 0; e < source.row_elems; ++e) {
    std::memcpy(to + e * target.elem_stride, from + e * source.elem_stride, size);
  }
}

void CopyPiece(const Piece& piece) {
  const RowCopy& copy = *piece.copy;
  const ViewLayout& source = copy.from.layout;
  const ViewLayout& target = copy.to.layout;
  const bool whole_rows = source.contiguous_rows() && target.contiguous_rows();
  const uint64_t bytes = source.row_bytes();
  RowCursor sources(copy.from, copy.from_rows, piece.head);
  RowCursor targets(copy.to, copy.to_rows, piece.head);
  for (uint32_t j = piece.begin; j < piece.end; ++j) {
    const std::byte* const from = sources.At(RowOf(copy.from_row, j));
    std::byte* const to = targets.At(RowOf(copy.to_row, j));
    if (whole_rows) {
      std::memcpy(to, from, bytes);
    } else {
      CopyElements(source, from, target, to);
    }
  }
}

}  // namespace

void CopyNumberedRows(std::span<const RowCopy> copies, ThreadTeam& team, RowCopyResult& result) {
  result = {};
  std::vector<Piece> pieces;
  for (const RowCopy& copy : copies) {
    const ViewLayout& layout = copy.from.layout;
    result.bytes_written += uint64_t{copy.count} * layout.heads * layout.row_bytes();
    for (uint32_t begin = 0; begin < copy.count; begin += kChunkRows) {
      const uint32_t end = begin + std::min(kChunkRows, copy.count - begin);
      for (uint32_t head = 0; head < layout.heads; ++head) {
        pieces.push_back({&copy, head, begin, end});
      }
    }
  }
  team.Run(pieces.size(), [&](size_t item, int) { CopyPiece(pieces[item]); });
}

}  // namespace kvtriage
