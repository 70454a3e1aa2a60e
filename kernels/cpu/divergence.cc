#include "kernels/cpu/divergence.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/checked_math.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_cursor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/divergence.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/widen-inl.h"

#ifndef KVTRIAGE_KERNELS_CPU_DIVERGENCE_ONCE_
#define KVTRIAGE_KERNELS_CPU_DIVERGENCE_ONCE_
namespace kvtriage {

// Head 0 of one row on both sides, and of the row to fetch meanwhile.
struct RowPair {
  const ViewLayout& fresh_layout;
  const ViewLayout& cached_layout;
  const std::byte *fresh, *cached;
  const std::byte *fresh_ahead, *cached_ahead;
  // The row's number on each side, for the scales of fp8.
  const DivergenceRows &fresh_rows, &cached_rows;
  uint64_t fresh_row, cached_row;
};

// Of one row; `old` stays 0 where nobody asks for it.
struct RowDivergence {
  float difference = 0, old = 0;
};

inline float ScaleOf(const DivergenceRows& rows, uint32_t head, uint64_t row) {
  return IsF8(rows.view.layout.dtype) ? RowScale(rows.view, rows.sequence, head, row) : 1.0f;
}

}  // namespace kvtriage
#endif  // KVTRIAGE_KERNELS_CPU_DIVERGENCE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kSumLanes = 32;
constexpr size_t kSums = kSumLanes / kLanes;

template <DType kType>
HWY_INLINE V LoadLanes(const std::byte* from) {
  const D d;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, LoadElement(from, kType));
#else
  if constexpr (kType == DType::kF16) return WidenF16(from);
  if constexpr (kType == DType::kBF16) return WidenBF16(from);
  return hn::LoadU(d, reinterpret_cast<const float*>(from));
#endif
}

// Sums of one row. No fused operations: targets without them have to give the same bits.
template <bool kRelative>
struct RowSums {
  V difference[kSums], old[kSums];

  HWY_INLINE RowSums() {
    const D d;
    for (size_t i = 0; i < kSums; ++i) difference[i] = old[i] = hn::Zero(d);
  }

  // The next kSumLanes elements.
  template <DType kFresh, DType kCached>
  HWY_INLINE void Add(const std::byte* fresh, const std::byte* cached) {
    for (size_t i = 0; i < kSums; ++i) {
      const V x = LoadLanes<kFresh>(fresh + i * kLanes * ElementBytes(kFresh));
      const V y = LoadLanes<kCached>(cached + i * kLanes * ElementBytes(kCached));
      const V change = hn::Sub(x, y);
      difference[i] = hn::Add(difference[i], hn::Mul(change, change));
      if constexpr (kRelative) old[i] = hn::Add(old[i], hn::Mul(y, y));
    }
  }

  HWY_INLINE RowDivergence Finish() const {
    return {Join(difference), kRelative ? Join(old) : 0.0f};
  }

 private:
  static HWY_INLINE float Join(const V* sums) {
    const D d;
    HWY_ALIGN float lanes[kSumLanes];
    for (size_t i = 0; i < kSums; ++i) hn::Store(sums[i], d, lanes + i * kLanes);
    for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }
};

// Elements [first, first + count) of one head.
struct HeadPart {
  const std::byte* head;
  const ViewLayout& layout;
  float scale;  // 1 unless fp8

  HWY_INLINE void Widen(size_t first, size_t count, float* out) const {
    WidenStrided(head + first * layout.elem_stride, layout.elem_stride, layout.dtype, count, out);
    if (scale == 1.0f) return;
    for (size_t i = 0; i < count; ++i) out[i] *= scale;
  }
};

// `count` <= kSumLanes elements from any strides; elements past the end are 0 on both sides.
template <bool kRelative>
HWY_INLINE void AddStaged(const HeadPart& fresh, const HeadPart& cached, size_t first, size_t count,
                          RowSums<kRelative>& sums) {
  HWY_ALIGN float x[kSumLanes] = {}, y[kSumLanes] = {};
  fresh.Widen(first, count, x);
  cached.Widen(first, count, y);
  sums.template Add<DType::kF32, DType::kF32>(reinterpret_cast<const std::byte*>(x),
                                              reinterpret_cast<const std::byte*>(y));
}

// Fetches the lines of kSumLanes neighbouring elements.
template <DType kType>
HWY_INLINE void Fetch(const std::byte* from) {
  for (size_t b = 0; b < kSumLanes * ElementBytes(kType); b += 64) FetchSoon(from + b);
}

// The row ahead is fetched piece by piece beside the work on this one. Strided elements are not
// fetched; they share their lines with the rows before.
template <DType kFresh, DType kCached, bool kRelative>
HWY_INLINE RowDivergence DivergeRow(const RowPair& row) {
  const ViewLayout& fresh = row.fresh_layout;
  const ViewLayout& cached = row.cached_layout;
  const bool direct = fresh.contiguous_rows() && cached.contiguous_rows() && !IsF8(fresh.dtype) &&
                      !IsF8(cached.dtype);
  const size_t elems = fresh.row_elems;
  RowSums<kRelative> sums;
  for (uint32_t head = 0; head < fresh.heads; ++head) {
    const uint64_t fresh_head = head * fresh.head_stride, cached_head = head * cached.head_stride;
    size_t e = 0;
    for (; direct && e + kSumLanes <= elems; e += kSumLanes) {
      const uint64_t fresh_at = fresh_head + e * ElementBytes(kFresh);
      const uint64_t cached_at = cached_head + e * ElementBytes(kCached);
      Fetch<kFresh>(row.fresh_ahead + fresh_at);
      Fetch<kCached>(row.cached_ahead + cached_at);
      sums.template Add<kFresh, kCached>(row.fresh + fresh_at, row.cached + cached_at);
    }
    if (e == elems) continue;
    const HeadPart fresh_part{row.fresh + fresh_head, fresh,
                              ScaleOf(row.fresh_rows, head, row.fresh_row)};
    const HeadPart cached_part{row.cached + cached_head, cached,
                               ScaleOf(row.cached_rows, head, row.cached_row)};
    for (; e < elems; e += kSumLanes) {
      AddStaged(fresh_part, cached_part, e, std::min(kSumLanes, elems - e), sums);
    }
  }
  return sums.Finish();
}

template <DType kFresh, DType kCached>
RowDivergence DivergeOne(const RowPair& row, bool relative) {
  return relative ? DivergeRow<kFresh, kCached, true>(row)
                  : DivergeRow<kFresh, kCached, false>(row);
}

template <DType kFresh>
RowDivergence DivergeFrom(const RowPair& row, bool relative) {
  switch (row.cached_layout.dtype) {
    case DType::kF16:
      return DivergeOne<kFresh, DType::kF16>(row, relative);
    case DType::kBF16:
      return DivergeOne<kFresh, DType::kBF16>(row, relative);
    default:
      return DivergeOne<kFresh, DType::kF32>(row, relative);
  }
}

// One row, all heads.
RowDivergence DivergeAny(const RowPair& row, bool relative) {
  switch (row.fresh_layout.dtype) {
    case DType::kF16:
      return DivergeFrom<DType::kF16>(row, relative);
    case DType::kBF16:
      return DivergeFrom<DType::kBF16>(row, relative);
    default:
      return DivergeFrom<DType::kF32>(row, relative);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(DivergeAny);

namespace {

constexpr size_t kChunkRows = 64;
constexpr uint64_t kAheadBytes = 16384;

void DivergeChunk(const DivergenceRequest& request, size_t begin, size_t end,
                  DivergenceResult& result) {
  const DivergenceRows& fresh = request.fresh;
  const DivergenceRows& cached = request.cached;
  const ViewLayout& layout = fresh.view.layout;
  const bool relative = request.metric == DivergenceMetric::kRelative;
  RowCursor fresh_rows(fresh.view, fresh.sequence, 0), cached_rows(cached.view, cached.sequence, 0);
  RowCursor fresh_ahead = fresh_rows, cached_ahead = cached_rows;
  const size_t ahead =
      std::clamp<uint64_t>(kAheadBytes / (layout.row_bytes() * layout.heads), 1, 16);
  for (size_t i = begin; i < end; ++i) {
    const uint64_t row = static_cast<uint64_t>(request.rows[i]);
    // Past the end of the chunk too: it is likely that this thread takes the next one.
    const size_t later = std::min(i + ahead, request.rows.size() - 1);
    const uint64_t next = static_cast<uint64_t>(request.rows[later]);
    const RowPair pair{layout,
                       cached.view.layout,
                       fresh_rows.At(row - fresh.first_row),
                       cached_rows.At(row - cached.first_row),
                       fresh_ahead.At(next - fresh.first_row),
                       cached_ahead.At(next - cached.first_row),
                       fresh,
                       cached,
                       row - fresh.first_row,
                       row - cached.first_row};
    const RowDivergence sums = HWY_DYNAMIC_DISPATCH(DivergeAny)(pair, relative);
    const bool quotient = relative && !request.apart;
    result.divergence[i] =
        quotient ? RelativeDivergence(sums.difference, sums.old) : sums.difference;
    if (!result.old.empty()) result.old[i] = sums.old;
  }
}

}  // namespace

void DivergeRows(const DivergenceRequest& request, ThreadTeam& team, DivergenceResult& result) {
  const size_t rows = request.rows.size();
  result.divergence.resize(rows);
  result.old.resize(request.apart ? rows : 0);
  team.Run(CeilDiv(rows, kChunkRows), [&](size_t chunk, int) {
    const size_t begin = chunk * kChunkRows;
    DivergeChunk(request, begin, std::min(begin + kChunkRows, rows), result);
  });
}

}  // namespace kvtriage
#endif  // HWY_ONCE
