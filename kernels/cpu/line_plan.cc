#include "kernels/cpu/line_plan.h"

#include <algorithm>
#include <cstring>

namespace kvtriage {
namespace {

// Planning is paid once per row and its cost shows beside that of moving it, so all that depends on
// the block is kept from row to row.
template <class Element>
class Planner {
 public:
  static constexpr size_t kPieceRows = kPieceBytes / sizeof(Element);

  Planner(const HeadMove& move, LinePlan& plan) : move_(move), plan_(plan) {
    plan.pieces = plan.windows_each = plan.singles = plan.cache_lines = 0;
    plan.piece_rows = kPieceRows;
    plan.element_bytes = sizeof(Element);
  }

  // Adds a piece made of kPieceRows rows; false, and nothing added, if a window would have to read
  // what is no row of the sequence.
  bool AddPiece(const int32_t* rows) {
    size_t windows = 0;
    const size_t first = plan_.pieces * kPieceRows;
    for (size_t i = 0; i < kPieceRows; ++windows) {
      const uint64_t row = static_cast<uint64_t>(rows[i]);
      EnterBlockOf(row);
      if (end_ - begin_ < kPieceRows) return false;
      const uint64_t start = std::min(row, end_ - kPieceRows);
      plan_.window_offset[first + windows] = Offset(start);
      uint8_t* shuffle = plan_.window[first + windows].shuffle;
      std::memset(shuffle, 0x80, kPieceBytes);
      for (; i < kPieceRows && static_cast<uint64_t>(rows[i]) < start + kPieceRows; ++i) {
        const Element bytes = ShuffleOf(static_cast<uint64_t>(rows[i]) - start);
        std::memcpy(shuffle + i * sizeof(Element), &bytes, sizeof(Element));
      }
    }
    for (size_t w = first; w < first + windows; ++w) {
      NoteCacheLine(plan_.window_offset[w]);
      NoteCacheLine(plan_.window_offset[w] + kPieceBytes - 1);
    }
    for (size_t w = first + windows; w < first + kPieceRows; ++w) {
      plan_.window_offset[w] = plan_.window_offset[first];
      std::memset(plan_.window[w].shuffle, 0x80, kPieceBytes);
    }
    plan_.windows_each = std::max(plan_.windows_each, windows);
    ++plan_.pieces;
    return true;
  }

  void AddSingle(int32_t row, size_t out) {
    EnterBlockOf(static_cast<uint64_t>(row));
    const uint64_t offset = Offset(static_cast<uint64_t>(row));
    NoteCacheLine(offset);
    plan_.single_offset[plan_.singles] = offset;
    plan_.single_out[plan_.singles++] = static_cast<uint32_t>(out);
  }

 private:
  // Byte numbers of the window's element `place`, first byte lowest.
  static Element ShuffleOf(uint64_t place) {
    constexpr Element kCounting = static_cast<Element>(0x03020100);
    constexpr Element kOnes = static_cast<Element>(0x01010101);
    return static_cast<Element>(kCounting + place * sizeof(Element) * kOnes);
  }

  void EnterBlockOf(uint64_t row) {
    if (row < end_ && row >= begin_) return;
    const MoveRequest& request = *move_.request;
    const SequenceRows& rows = request.from_rows;
    const uint64_t slots = request.from.layout.block_slots;
    const uint64_t before = (rows.first_slot + row) % slots;
    begin_ = row - std::min(row, before);
    end_ = std::min<uint64_t>(row - before + slots, rows.rows);
    const std::byte* at = RowAddress(request.from, rows, move_.head, begin_);
    begin_offset_ = static_cast<uint64_t>(at - request.from.base);
  }

  uint64_t Offset(uint64_t row) const {
    return begin_offset_ + (row - begin_) * move_.request->from.layout.slot_stride;
  }

  // Rows ascend, but blocks lie anywhere: a line is new when it is not the one noted last.
  void NoteCacheLine(uint64_t offset) {
    const size_t lines = plan_.cache_lines;
    if (lines > 0 && plan_.cache_line_offset[lines - 1] / 64 == offset / 64) return;
    plan_.cache_line_offset[plan_.cache_lines++] = offset;
  }

  const HeadMove& move_;
  LinePlan& plan_;
  // Rows of the sequence in the current block, the only ones that may be read, and where they
  // begin.
  uint64_t begin_ = 0, end_ = 0, begin_offset_ = 0;
};

template <class Element>
void PlanLineOf(const HeadMove& move, size_t first, size_t rows, LinePlan& plan) {
  const std::span<const int32_t> kept = move.kept().subspan(first, rows);
  Planner<Element> planner(move, plan);
  plan.rows = rows;
  size_t i = 0;
  if (move.request->from.layout.slot_stride == sizeof(Element)) {
    constexpr size_t kPieceRows = Planner<Element>::kPieceRows;
    while (i + kPieceRows <= rows && planner.AddPiece(&kept[i])) i += kPieceRows;
  }
  for (; i < rows; ++i) planner.AddSingle(kept[i], i * sizeof(Element));
}

}  // namespace

void PlanLine(const HeadMove& move, size_t first, size_t rows, LinePlan& plan) {
  if (ElementBytes(move.request->from.layout.dtype) == 4) {
    PlanLineOf<uint32_t>(move, first, rows, plan);
  } else {
    PlanLineOf<uint16_t>(move, first, rows, plan);
  }
}

}  // namespace kvtriage
