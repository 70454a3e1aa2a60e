#include <algorithm>
#include <cstring>
#include <memory>

#include "hwy/cache_control.h"
#include "kernels/cpu/head_move.h"
#include "kernels/cpu/line_plan.h"
#include "kernels/cpu/row_cursor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compact_lines.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

void StorePieces(const LinePlan& plan, const std::byte* source, bool, std::byte* to) {
  for (size_t i = 0; i < plan.pieces; ++i, to += kPieceBytes) {
    uint8_t piece[kPieceBytes] = {};
    for (size_t w = i * plan.piece_rows; w < i * plan.piece_rows + plan.windows_each; ++w) {
      for (size_t b = 0; b < kPieceBytes; ++b) {
        const uint8_t from = plan.window[w].shuffle[b];
        if (from < 0x80) piece[b] = static_cast<uint8_t>(source[plan.window_offset[w] + from]);
      }
    }
    std::memcpy(to, piece, kPieceBytes);
  }
}

#else

using Piece = hn::FixedTag<uint8_t, kPieceBytes>;
using Bytes = hn::CappedTag<uint8_t, 64>;

HWY_INLINE hn::Vec<Piece> MakePiece(const std::byte* source, const uint64_t* offsets,
                                    const LinePlan::Window* windows, size_t count) {
  const Piece d;
  auto piece = hn::Zero(d);
  for (size_t w = 0; w < count; ++w) {
    const auto bytes = hn::LoadU(d, reinterpret_cast<const uint8_t*>(source + offsets[w]));
    piece = hn::Or(piece, hn::TableLookupBytesOr0(bytes, hn::Load(d, windows[w].shuffle)));
  }
  return piece;
}

// As many pieces side by side as a vector holds.
template <class D>
HWY_INLINE hn::Vec<D> JoinPieces(D d, const std::byte* source, const uint64_t* offsets,
                                 const LinePlan::Window* windows, size_t count, size_t step) {
  if constexpr (hn::MaxLanes(D()) <= kPieceBytes) {
    return MakePiece(source, offsets, windows, count);
  } else {
    const hn::Half<D> half;
    const size_t upper = hn::MaxLanes(half) / kPieceBytes * step;
    const auto low = JoinPieces(half, source, offsets, windows, count, step);
    const auto high = JoinPieces(half, source, offsets + upper, windows + upper, count, step);
    return hn::Combine(d, high, low);
  }
}

void StorePieces(const LinePlan& plan, const std::byte* source, bool stream, std::byte* to) {
  const Piece one;
  const Bytes many;
  constexpr size_t kTogether = hn::MaxLanes(Bytes()) / kPieceBytes;
  const size_t pieces = plan.pieces, count = plan.windows_each, step = plan.piece_rows;
  const uint64_t* offsets = plan.window_offset;
  const LinePlan::Window* windows = plan.window;
  auto* target = reinterpret_cast<uint8_t*>(to);
  size_t i = 0;
  if (stream && reinterpret_cast<uintptr_t>(to) % hn::MaxLanes(Bytes()) == 0) {
    for (; i + kTogether <= pieces; i += kTogether) {
      hn::Stream(JoinPieces(many, source, offsets, windows, count, step), many,
                 target + i * kPieceBytes);
      offsets += kTogether * step;
      windows += kTogether * step;
    }
  }
  for (; i < pieces; ++i, offsets += step, windows += step) {
    const auto piece = MakePiece(source, offsets, windows, count);
    if (stream) {
      hn::Stream(piece, one, target + i * kPieceBytes);
    } else {
      hn::StoreU(piece, one, target + i * kPieceBytes);
    }
  }
}

#endif

// Stores the line of one element. Stores need not wait for all loads: the sources of later pieces
// lie behind a piece also in place, since no row moves up.
void StoreLine(const LinePlan& plan, const std::byte* source, bool stream, std::byte* to) {
  StorePieces(plan, source, stream, to);
  const size_t singles = plan.singles, bytes = plan.element_bytes;
  for (size_t i = 0; i < singles; ++i) {
    std::memcpy(to + plan.single_out[i], source + plan.single_offset[i], bytes);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(StoreLine);

namespace {

// How far ahead of the stored lines the sources are prefetched.
constexpr size_t kAheadBytes = 4096;

void PrefetchElement(const LinePlan& plan, const std::byte* source) {
  for (size_t i = 0; i < plan.cache_lines; ++i) hwy::Prefetch(source + plan.cache_line_offset[i]);
}

// Prefetches what element `e` of the row needs; elements past its end are the first of the next
// plan.
void PrefetchAhead(const ViewLayout& layout, const std::byte* base, size_t e, const LinePlan& plan,
                   const LinePlan& next) {
  if (e < layout.row_elems) {
    PrefetchElement(plan, base + e * layout.elem_stride);
  } else if (next.rows > 0 && e - layout.row_elems < layout.row_elems) {
    PrefetchElement(next, base + (e - layout.row_elems) * layout.elem_stride);
  }
}

// Streamed stores pay when they fill cache lines: the line itself does, or it ends where the next
// element's begins.
bool FillsCacheLines(const LinePlan& plan, const ViewLayout& target, const std::byte* to) {
  if (plan.singles > 0 || reinterpret_cast<uintptr_t>(to) % 64 != 0) return false;
  if (plan.bytes() % 64 == 0) return target.elem_stride % 64 == 0;
  return target.elem_stride == plan.bytes() && target.elem_stride % kPieceBytes == 0;
}

void MoveLines(const HeadMove& move, const LinePlan& plan, const LinePlan& next, std::byte* to) {
  const ViewLayout& source = move.request->from.layout;
  const ViewLayout& target = move.request->to.layout;
  const bool stream = move.stream && FillsCacheLines(plan, target, to);
  const size_t ahead = std::max<size_t>(kAheadBytes / plan.bytes(), 1);
  const std::byte* base = move.request->from.base;
  for (size_t e = 0; e < target.row_elems; ++e) {
    PrefetchAhead(source, base, e + ahead, plan, next);
    HWY_DYNAMIC_DISPATCH(StoreLine)
    (plan, base + e * source.elem_stride, stream, to + e * target.elem_stride);
  }
}

}  // namespace

void MoveToLines(const HeadMove& move) {
  const MoveRequest& request = *move.request;
  const size_t rows = move.kept().size();
  RowCursor targets(request.to, request.to_rows, move.head);
  // The plan of the line after this one is made first, so that its start can be prefetched.
  auto plan = std::make_unique_for_overwrite<LinePlan>();
  auto next = std::make_unique_for_overwrite<LinePlan>();
  const auto make_plan = [&](size_t j, LinePlan& line) {
    if (j == rows) {
      line.rows = 0;
      return;
    }
    // Lines of huge blocks are cut at equal places, so that all but the first can be streamed.
    const uint64_t to_cut = kMaxLineRows - targets.RowsBeforeInBlock(j) % kMaxLineRows;
    PlanLine(move, j, std::min({rows - j, targets.RowsLeftInBlock(j), to_cut}), line);
  };
  make_plan(move.first, *plan);
  for (size_t j = move.first; j < rows; j += plan->rows, std::swap(plan, next)) {
    make_plan(j + plan->rows, *next);
    MoveLines(move, *plan, *next, targets.At(j));
  }
  // Streamed stores are weakly ordered: whoever learns of this move's end must find them done.
  if (move.stream) hwy::FlushStream();
}

}  // namespace kvtriage
#endif  // HWY_ONCE
