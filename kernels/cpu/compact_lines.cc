#include <algorithm>
#include <cstring>
#include <memory>

#include "hwy/aligned_allocator.h"
#include "hwy/cache_control.h"
#include "kernels/cpu/head_move.h"
#include "kernels/cpu/line_plan.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_cursor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compact_lines.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/stream_copy-inl.h"

#ifndef KVTRIAGE_KERNELS_CPU_COMPACT_LINES_ONCE_
#define KVTRIAGE_KERNELS_CPU_COMPACT_LINES_ONCE_
namespace kvtriage {

// Lines that are collected before they are stored.
inline constexpr size_t kCollectBytes = 1024;

// All lines of some neighbouring rows: one per element of the row.
struct LineMove {
  const LinePlan& plan;
  const LinePlan& next;  // of the lines that come after these; no rows at the end
  const std::byte* source;
  uint64_t source_stride;  // from element to element
  std::byte* target;
  uint64_t target_stride;
  size_t elements;
  bool stream;
  std::byte* collected;  // aligned room for kCollectBytes and kWindowBytes
};

}  // namespace kvtriage
#endif  // KVTRIAGE_KERNELS_CPU_COMPACT_LINES_ONCE_

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void ShuffleWindow(const std::byte* from, const LinePlan::Shuffle& shuffle,
                              std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  std::byte window[kWindowBytes];
  for (size_t i = 0; i < kWindowBytes; ++i) window[i] = from[shuffle.from[i]];
  std::memcpy(to, window, kWindowBytes);
#else
  const hn::FixedTag<uint8_t, kWindowBytes> d;
  const auto bytes = hn::LoadU(d, reinterpret_cast<const uint8_t*>(from));
  hn::StoreU(hn::TableLookupBytes(bytes, hn::Load(d, shuffle.from)), d,
             reinterpret_cast<uint8_t*>(to));
#endif
}

// Puts the line of one element together at `out`, which has room for it and kWindowBytes. Between
// the windows it fetches the lines of a later element (`ahead`, at `ahead_source`).
HWY_INLINE void CollectLine(const LinePlan& plan, const std::byte* source, const LinePlan& ahead,
                            const std::byte* ahead_source, std::byte* out) {
  const size_t windows = plan.windows, singles = plan.singles;
  const size_t fetches = ahead.cache_lines;
  size_t fetched = 0;
  const auto fetch = [&] {
    if (fetched == fetches) return;
    FetchSoon(ahead_source + ahead.cache_line_offset[fetched++]);
  };
  for (size_t i = 0; i < windows; ++i) {
    if (i % 2 == 0) fetch();
    ShuffleWindow(source + plan.window_offset[i], plan.shuffle[i], out + plan.window_out[i]);
  }
  for (size_t i = 0; i < singles; ++i) {
    fetch();
    std::memcpy(out + plan.single_out[i], source + plan.single_offset[i], plan.element_bytes);
  }
}

// Stores cover the planned rows and nothing else.
HWY_INLINE void StoreLine(const std::byte* from, std::byte* to, size_t bytes, bool stream) {
  if (stream && (reinterpret_cast<uintptr_t>(to) | bytes) % 64 == 0) {
    StreamBytes(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// Every line is read completely before a byte of it is stored, so in place no source is lost.
void MoveLines(const LineMove& move) {
  constexpr size_t kAheadBytes = 4096;
  const size_t bytes = move.plan.bytes(), elements = move.elements;
  const size_t ahead = std::clamp<size_t>(kAheadBytes / bytes, 1, elements);
  const size_t together = std::max<size_t>(kCollectBytes / bytes, 1);
  const bool adjoining = move.target_stride == bytes;  // full blocks: line follows line
  for (size_t e = 0; e < elements; e += together) {
    const size_t count = std::min(together, elements - e);
    for (size_t i = e; i < e + count; ++i) {
      const bool same = i + ahead < elements;
      const size_t later = same ? i + ahead : i + ahead - elements;
      CollectLine(move.plan, move.source + i * move.source_stride, same ? move.plan : move.next,
                  move.source + later * move.source_stride, move.collected + (i - e) * bytes);
    }
    std::byte* const line = move.target + e * move.target_stride;
    const size_t stores = adjoining ? 1 : count, size = adjoining ? count * bytes : bytes;
    for (size_t i = 0; i < stores; ++i) {
      StoreLine(move.collected + i * size, line + i * move.target_stride, size, move.stream);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(MoveLines);

void MoveToLines(const HeadMove& move) {
  const MoveRequest& request = *move.request;
  const size_t rows = move.kept().size();
  RowCursor targets(request.to, request.to_rows, move.head);
  // The plan of the lines after these is made first, so that their start can be prefetched.
  auto plan = std::make_unique_for_overwrite<LinePlan>();
  auto next = std::make_unique_for_overwrite<LinePlan>();
  const auto collected = hwy::AllocateAligned<std::byte>(kCollectBytes + kWindowBytes);
  const auto make_plan = [&](size_t j, LinePlan& line) {
    line.rows = line.cache_lines = 0;
    if (j == rows) return;
    // Lines of huge blocks are cut at equal places, so that all but the first can be streamed.
    const uint64_t to_cut = kMaxLineRows - targets.RowsBeforeInBlock(j) % kMaxLineRows;
    PlanLine(move, j, std::min({rows - j, targets.RowsLeftInBlock(j), to_cut}), line);
  };
  make_plan(move.first, *plan);
  for (size_t j = move.first; j < rows; j += plan->rows, std::swap(plan, next)) {
    make_plan(j + plan->rows, *next);
    HWY_DYNAMIC_DISPATCH(MoveLines)
    ({.plan = *plan,
      .next = *next,
      .source = request.from.base,
      .source_stride = request.from.layout.elem_stride,
      .target = targets.At(j),
      .target_stride = request.to.layout.elem_stride,
      .elements = request.to.layout.row_elems,
      .stream = move.stream,
      .collected = collected.get()});
  }
  // Streamed stores are weakly ordered: whoever learns of this move's end must find them done.
  if (move.stream) hwy::FlushStream();
}

}  // namespace kvtriage
#endif  // HWY_ONCE
