#include <algorithm>
#include <array>
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/head_move.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_cursor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compact_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/stream_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {

// Sources lie at irregular distances, which no hardware prefetcher guesses: `known` addresses are
// given, more than `rows`, and the row `ahead` is fetched line by line while one is copied.
void StreamRows(const std::byte* const* from, std::byte* const* to, size_t rows, size_t ahead,
                size_t known, size_t bytes) {
  for (size_t j = 0; j < rows; ++j) {
    const std::byte* const next = from[std::min(j + ahead, known - 1)];
    for (size_t b = 0; b < bytes; b += 64) {
      FetchSoon(next + b);
      StreamBytes(from[j] + b, to[j] + b, 64);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(StreamRows);

namespace {

constexpr size_t kBatch = 256;    // rows whose addresses are made together
constexpr size_t kMaxAhead = 32;  // rows
constexpr size_t kAheadBytes = 8192;

void CopyRows(const std::byte* const* from, std::byte* const* to, size_t rows, size_t ahead,
              size_t known, size_t bytes) {
  constexpr size_t kStep = 256;  // bytes fetched at a time
  for (size_t j = 0; j < rows; ++j) {
    const std::byte* const next = from[std::min(j + ahead, known - 1)];
    for (size_t b = 0; b < bytes; b += kStep) {
      const size_t step = std::min(kStep, bytes - b);
      for (size_t line = 0; line < step; line += 64) FetchSoon(next + b + line);
      std::memcpy(to[j] + b, from[j] + b, step);
    }
  }
}

// Whether every row of the view fills whole cache lines.
bool FillsLines(const KvView& view) {
  const ViewLayout& layout = view.layout;
  const uint64_t all = reinterpret_cast<uintptr_t>(view.base) | layout.block_stride |
                       layout.head_stride | layout.slot_stride | layout.row_bytes();
  return all % 64 == 0;
}

}  // namespace

void MoveContiguousRows(const HeadMove& move) {
  const MoveRequest& request = *move.request;
  const std::span<const int32_t> kept = move.kept();
  const size_t bytes = request.from.layout.row_bytes();
  const size_t ahead = std::clamp<size_t>(kAheadBytes / bytes, 1, kMaxAhead);
  const bool stream = move.stream && FillsLines(request.to);
  RowCursor sources(request.from, request.from_rows, move.head);
  RowCursor targets(request.to, request.to_rows, move.head);
  std::array<const std::byte*, kBatch + kMaxAhead> from;
  std::array<std::byte*, kBatch> to;
  for (size_t j = move.first; j < kept.size(); j += kBatch) {
    const size_t rows = std::min(kBatch, kept.size() - j);
    const size_t known = std::min(rows + ahead, kept.size() - j);
    for (size_t i = 0; i < known; ++i) from[i] = sources.At(static_cast<uint64_t>(kept[j + i]));
    for (size_t i = 0; i < rows; ++i) to[i] = targets.At(j + i);
    if (stream) {
      HWY_DYNAMIC_DISPATCH(StreamRows)(from.data(), to.data(), rows, ahead, known, bytes);
    } else {
      CopyRows(from.data(), to.data(), rows, ahead, known, bytes);
    }
  }
  // Streamed stores are weakly ordered: whoever learns of this move's end must find them done.
  if (stream) hwy::FlushStream();
}

}  // namespace kvtriage
#endif  // HWY_ONCE
