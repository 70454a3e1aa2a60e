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
  Planner(const HeadMove& move, LinePlan& plan) : move_(move), plan_(plan) {
    plan.windows = plan.singles = plan.cache_lines = 0;
    plan.element_bytes = sizeof(Element);
  }

  // Adds a window with as many of `rows` as it holds, and returns their number; 0, and nothing
  // added, if it would have to read what is no row of the sequence.
  size_t AddWindow(std::span<const int32_t> rows, size_t out) {
    constexpr size_t kWindowRows = kWindowBytes / sizeof(Element);
    const uint64_t row = static_cast<uint64_t>(rows[0]);
    EnterBlockOf(row);
    if (end_ - begin_ < kWindowRows) return 0;
    const uint64_t start = std::min(row, end_ - kWindowRows);
    const size_t w = plan_.windows++;
    plan_.window_offset[w] = Offset(start);
    plan_.window_out[w] = static_cast<uint32_t>(out);
    NoteCacheLine(plan_.window_offset[w]);
    NoteCacheLine(plan_.window_offset[w] + kWindowBytes - 1);
    uint8_t* const from = plan_.shuffle[w].from;
    std::memset(from, 0, kWindowBytes);
    size_t taken = 0;
    for (; taken < rows.size(); ++taken) {
      const uint64_t place = static_cast<uint64_t>(rows[taken]) - start;
      if (place >= kWindowRows) break;
      const Element bytes = BytesAt(place);
      std::memcpy(from + taken * sizeof(Element), &bytes, sizeof(Element));
    }
    return taken;
  }

  void AddSingle(int32_t row, size_t out) {
    EnterBlockOf(static_cast<uint64_t>(row));
    const uint64_t offset = Offset(static_cast<uint64_t>(row));
    NoteCacheLine(offset);
    plan_.single_offset[plan_.singles] = offset;
    plan_.single_out[plan_.singles++] = static_cast<uint32_t>(out);
  }

 private:
  // The numbers of the bytes of a window's element, the first in the lowest byte.
  static Element BytesAt(uint64_t place) {
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
  const bool neighbours = move.request->from.layout.slot_stride == sizeof(Element);
  Planner<Element> planner(move, plan);
  plan.rows = rows;
  for (size_t i = 0; i < rows;) {
    const size_t out = i * sizeof(Element);
    const size_t taken = neighbours ? planner.AddWindow(kept.subspan(i), out) : 0;
    if (taken == 0) planner.AddSingle(kept[i], out);
    i += std::max<size_t>(taken, 1);
  }
}

}  // namespace

void PlanLine(const HeadMove& move, size_t first, size_t rows, LinePlan& plan) {
  switch (ElementBytes(move.request->from.layout.dtype)) {
    case 4:
      return PlanLineOf<uint32_t>(move, first, rows, plan);
    case 2:
      return PlanLineOf<uint16_t>(move, first, rows, plan);
    default:
      return PlanLineOf<uint8_t>(move, first, rows, plan);
  }
}

}  // namespace kvtriage
