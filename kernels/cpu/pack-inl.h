// Rows of K or V, however they are stored, to the panels that the products read. Every layout gives
// the same bits. Rows outside the asked range are never read.

#if defined(KVTRIAGE_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#undef KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/row_cursor.h"
#include "kernels/cpu/widen-inl.h"
#include "kvtriage/kernels/views.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Rows [begin, begin + count) of one head; count <= kPanel.
struct TokenRange {
  const KvView& view;
  const SequenceRows& sequence;
  uint32_t head;
  uint64_t begin;
  size_t count;
};

// What packing adds up per token besides the panel itself.
enum class Norm : uint8_t { kNone, kSquares, kMagnitudes };

// Room that PackPanel needs, in floats: the panel (rows rounded up), and the scratch.
constexpr size_t PanelFloats(size_t elems) { return (elems + 7) / 8 * 8 * kPanel; }
constexpr size_t PackScratchFloats(size_t elems) { return (kLanes + 1) * ((elems + 7) / 8 * 8); }

// Sums over the elements of each token, kLanes tokens at once, as four chains that are joined in
// one order: all ways of packing use this, so that they give the same bits.
template <Norm kNorm>
struct ElementSums {
  V norm[4], bad[4];

  HWY_INLINE ElementSums() {
    const D d;
    for (size_t c = 0; c < 4; ++c) norm[c] = bad[c] = hn::Zero(d);
  }
  HWY_INLINE void Add(size_t chain, V x) {
    const D d;
    bad[chain] = hn::MulAdd(x, hn::Zero(d), bad[chain]);  // NaN from the first non-finite x on
    if constexpr (kNorm == Norm::kSquares) norm[chain] = hn::MulAdd(x, x, norm[chain]);
    if constexpr (kNorm == Norm::kMagnitudes) norm[chain] = hn::Add(hn::Abs(x), norm[chain]);
  }
  HWY_INLINE void Store(float* bad_out, float* norm_out) const {
    const D d;
    hn::Store(hn::Add(hn::Add(bad[0], bad[1]), hn::Add(bad[2], bad[3])), d, bad_out);
    if constexpr (kNorm != Norm::kNone) {
      hn::Store(hn::Add(hn::Add(norm[0], norm[1]), hn::Add(norm[2], norm[3])), d, norm_out);
    }
  }
};

template <Norm kNorm>
HWY_INLINE void SumPanel(const float* panel, size_t elems, float* bad, float* norms) {
  const D d;
  for (size_t v = 0; v < kPanel; v += kLanes) {
    ElementSums<kNorm> sums;
    for (size_t k = 0; k < elems; ++k) sums.Add(k % 4, hn::Load(d, panel + k * kPanel + v));
    sums.Store(bad + v, norms + v);
  }
}

#if HWY_TARGET != HWY_SCALAR
using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;

// 16 bytes of every fourth row, from row 0 of `rows` on: one row per 128-bit block.
HWY_INLINE VU LoadBlockPerRow(const std::byte* const* rows, size_t byte) {
  const auto at = [&](size_t r)
                      HWY_ATTR { return reinterpret_cast<const uint32_t*>(rows[4 * r] + byte); };
#if HWY_MAX_BYTES == 64
  const hn::Half<DU> d2;
  const hn::Half<decltype(d2)> d1;
  const auto low = hn::Combine(d2, hn::LoadU(d1, at(1)), hn::LoadU(d1, at(0)));
  const auto high = hn::Combine(d2, hn::LoadU(d1, at(3)), hn::LoadU(d1, at(2)));
  return hn::Combine(DU(), high, low);
#elif HWY_MAX_BYTES == 32
  const hn::Half<DU> d1;
  return hn::Combine(DU(), hn::LoadU(d1, at(1)), hn::LoadU(d1, at(0)));
#else
  return hn::LoadU(DU(), at(0));
#endif
}

// Transposes the 16 bytes at `byte` of kLanes rows: word[w] holds word w of each.
HWY_INLINE void TransposeWords(const std::byte* const* rows, size_t byte, VU* word) {
  const DU d;
  const hn::Repartition<uint64_t, DU> d64;
  const VU r0 = LoadBlockPerRow(rows, byte), r1 = LoadBlockPerRow(rows + 1, byte);
  const VU r2 = LoadBlockPerRow(rows + 2, byte), r3 = LoadBlockPerRow(rows + 3, byte);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  word[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  word[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  word[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  word[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

// kLanes rows of `elems` elements to one vector column of the panel. kBF16: elems is a multiple of
// 8 bf16, else of 4 float32. Meanwhile fetches the rows `ahead` into the cache, a few lines at a
// time: all at once would fill the queue of misses and stop the processor.
template <Norm kNorm, bool kBF16>
HWY_INLINE void TransposeRows(const std::byte* const* rows, const std::byte* const* ahead,
                              size_t elems, float* panel, float* bad, float* norms) {
  const D d;
  const DU du;
  ElementSums<kNorm> sums;
  constexpr size_t kStep = kBF16 ? 8 : 4;
  for (size_t k = 0; k < elems; k += kStep) {
    VU word[4];
    const size_t byte = k * (16 / kStep);
    TransposeWords(rows, byte, word);
    // A line holds four steps; each fetches it for a quarter of the rows.
    const size_t first = byte / 16 % 4 * (kLanes / 4);
    for (size_t r = first; r < first + kLanes / 4; ++r) {
      // Into the second level: the few misses that the first can keep open would be the limit.
      __builtin_prefetch(ahead[r] + byte, 0, 2);
    }
    HWY_UNROLL(4)
    for (size_t w = 0; w < 4; ++w) {
      if constexpr (kBF16) {  // a word is a pair of elements, the first in its low half
        const V first = hn::BitCast(d, hn::ShiftLeft<16>(word[w]));
        const V second = hn::BitCast(d, hn::And(word[w], hn::Set(du, 0xFFFF0000u)));
        hn::Store(first, d, panel + (k + 2 * w) * kPanel);
        hn::Store(second, d, panel + (k + 2 * w + 1) * kPanel);
        sums.Add(2 * w % 4, first);
        sums.Add(2 * w % 4 + 1, second);
      } else {
        const V x = hn::BitCast(d, word[w]);
        hn::Store(x, d, panel + (k + w) * kPanel);
        sums.Add(w, x);
      }
    }
  }
  sums.Store(bad, norms);
}

// Rows with neighbouring elements.
template <Norm kNorm>
HWY_INLINE void PackRows(const TokenRange& from, float* scratch, float* panel, float* bad,
                         float* norms) {
  const ViewLayout& layout = from.view.layout;
  const size_t elems = layout.row_elems, padded = (elems + 7) / 8 * 8;
  const bool pairs = layout.dtype == DType::kBF16 && elems % 8 == 0;
  const bool direct = pairs || (layout.dtype == DType::kF32 && elems % 4 == 0);
  float* const zeros = scratch + kLanes * padded;
  std::memset(zeros, 0, padded * sizeof(float));
  RowCursor cursor(from.view, from.sequence, from.head), ahead = cursor;
  for (size_t v = 0; v < kPanel; v += kLanes) {
    const std::byte* rows[kLanes];
    const std::byte* next[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t p = std::min<uint64_t>(from.begin + v + lane + kPanel, from.sequence.rows - 1);
      next[lane] = ahead.At(p);
      rows[lane] = reinterpret_cast<const std::byte*>(zeros);
      if (v + lane >= from.count) continue;
      rows[lane] = cursor.At(from.begin + v + lane);
      if (direct) continue;
      float* const row = scratch + lane * padded;
      WidenElements(rows[lane], layout.dtype, elems, row);
      std::fill(row + elems, row + padded, 0.0f);
      rows[lane] = reinterpret_cast<const std::byte*>(row);
    }
    if (pairs) {
      TransposeRows<kNorm, true>(rows, next, elems, panel + v, bad + v, norms + v);
    } else {
      TransposeRows<kNorm, false>(rows, next, direct ? elems : padded, panel + v, bad + v,
                                  norms + v);
    }
  }
}
#endif  // HWY_SCALAR

// Any other strides: element by element of the row, along the slots, because they are neighbours in
// memory where keys are stored transposed.
template <Norm kNorm>
HWY_INLINE void PackColumns(const TokenRange& from, float* panel, float* bad, float* norms) {
  const ViewLayout& layout = from.view.layout;
  RowCursor cursor(from.view, from.sequence, from.head);
  for (size_t lane = 0; lane < from.count;) {
    const uint64_t p = from.begin + lane;
    const size_t run = std::min<uint64_t>(from.count - lane, cursor.RowsLeftInBlock(p));
    const std::byte* const row = cursor.At(p);
    for (size_t k = 0; k < layout.row_elems; ++k) {
      WidenStrided(row + k * layout.elem_stride, layout.slot_stride, layout.dtype, run,
                   panel + k * kPanel + lane);
    }
    lane += run;
  }
  for (size_t k = 0; from.count < kPanel && k < layout.row_elems; ++k) {
    std::fill(panel + k * kPanel + from.count, panel + (k + 1) * kPanel, 0.0f);
  }
  SumPanel<kNorm>(panel, layout.row_elems, bad, norms);
}

// panel[elem][kPanel] = the rows, transposed; lanes behind the last row are 0. bad[kPanel] is NaN
// for rows with a non-finite element, else 0; norms[kPanel] as `kNorm` says.
template <Norm kNorm>
HWY_NOINLINE void PackPanel(const TokenRange& from, [[maybe_unused]] float* scratch, float* panel,
                            float* bad, float* norms) {
#if HWY_TARGET != HWY_SCALAR
  if (from.view.layout.contiguous_rows()) return PackRows<kNorm>(from, scratch, panel, bad, norms);
#endif
  PackColumns<kNorm>(from, panel, bad, norms);
}

// values[kPanel][pitch] = the rows as they lie, zero behind the last element and the last row and
// in rows with a non-finite element. bad as for PackPanel.
HWY_NOINLINE inline void PackValueRows(const TokenRange& from, size_t pitch, float* values,
                                       float* bad) {
  const D d;
  const ViewLayout& layout = from.view.layout;
  RowCursor cursor(from.view, from.sequence, from.head);
  for (size_t t = 0; t < kPanel; ++t) {
    float* const row = values + t * pitch;
    bad[t] = 0.0f;
    if (t >= from.count) {
      std::fill(row, row + pitch, 0.0f);
      continue;
    }
    WidenStrided(cursor.At(from.begin + t), layout.elem_stride, layout.dtype, layout.row_elems,
                 row);
    std::fill(row + layout.row_elems, row + pitch, 0.0f);
    V check = hn::Zero(d);
    for (size_t k = 0; k < pitch; k += kLanes) {
      check = hn::MulAdd(hn::Load(d, row + k), hn::Zero(d), check);
    }
    if (hn::AllTrue(d, hn::Eq(check, hn::Zero(d)))) continue;
    bad[t] = std::numeric_limits<float>::quiet_NaN();
    std::fill(row, row + pitch, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
