// Rows of K or V read as vectors of tokens: element k of kLanes rows at a time.

#if defined(KVTRIAGE_KERNELS_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_TRANSPOSE_INL_H_
#undef KVTRIAGE_KERNELS_CPU_TRANSPOSE_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstring>

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

// Room that RowVectors needs, in floats.
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

// Hands element k of kLanes rows to sink.Take(k, vector), k ascending. kBF16: `elems` is a multiple
// of 8 bf16, else of 4 float32. Meanwhile fetches the rows `ahead` into the cache, a few lines at a
// time: all at once would fill the queue of misses and stop the processor.
template <Norm kNorm, bool kBF16, class Sink>
HWY_INLINE void TransposeRows(const std::byte* const* rows, const std::byte* const* ahead,
                              size_t elems, Sink& sink, float* bad, float* norms) {
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
    HWY_UNROLL(4)
    for (size_t r = first; r < first + kLanes / 4; ++r) {
      // Into the second level: the few misses that the first can keep open would be the limit.
      __builtin_prefetch(ahead[r] + byte, 0, 2);
    }
    HWY_UNROLL(4)
    for (size_t w = 0; w < 4; ++w) {
      if constexpr (kBF16) {  // a word is a pair of elements, the first in its low half
        const V first_of_pair = hn::BitCast(d, hn::ShiftLeft<16>(word[w]));
        const V second = hn::BitCast(d, hn::And(word[w], hn::Set(du, 0xFFFF0000u)));
        sink.Take(k + 2 * w, first_of_pair);
        sink.Take(k + 2 * w + 1, second);
        sums.Add(2 * w % 4, first_of_pair);
        sums.Add(2 * w % 4 + 1, second);
      } else {
        const V x = hn::BitCast(d, word[w]);
        sink.Take(k + w, x);
        sums.Add(w, x);
      }
    }
  }
  sums.Store(bad, norms);
}

// Addresses of kLanes rows with neighbouring elements, as TransposeRows can read them: in place, or
// a float32 copy in `scratch`. Rows that do not exist read as zeros.
class RowVectors {
 public:
  RowVectors(const TokenRange& from, float* scratch)
      : from_(from),
        layout_(from.view.layout),
        padded_((layout_.row_elems + size_t{7}) / 8 * 8),
        pairs_(layout_.dtype == DType::kBF16 && layout_.row_elems % 8 == 0),
        direct_(pairs_ || (layout_.dtype == DType::kF32 && layout_.row_elems % 4 == 0)),
        scratch_(scratch),
        zeros_(scratch + kLanes * padded_),
        cursor_(from.view, from.sequence, from.head),
        ahead_cursor_(cursor_) {
    std::memset(zeros_, 0, padded_ * sizeof(float));
  }

  // Tokens [first, first + kLanes) of the range.
  template <Norm kNorm, class Sink>
  HWY_INLINE void Transpose(size_t first, Sink& sink, float* bad, float* norms) {
    for (size_t lane = 0; lane < kLanes; ++lane) Point(first, lane);
    if (pairs_) {
      TransposeRows<kNorm, true>(rows_, ahead_, layout_.row_elems, sink, bad, norms);
    } else {
      TransposeRows<kNorm, false>(rows_, ahead_, direct_ ? layout_.row_elems : padded_, sink, bad,
                                  norms);
    }
  }

 private:
  HWY_INLINE void Point(size_t first, size_t lane) {
    // The same place of the next panel; where there is none, any row will do.
    const uint64_t next = from_.begin + first + lane + kPanel;
    ahead_[lane] = ahead_cursor_.At(std::min<uint64_t>(next, from_.sequence.rows - 1));
    rows_[lane] = reinterpret_cast<const std::byte*>(zeros_);
    if (first + lane >= from_.count) return;
    rows_[lane] = cursor_.At(from_.begin + first + lane);
    if (direct_) return;
    float* const row = scratch_ + lane * padded_;
    WidenRow(rows_[lane], layout_, cursor_.ScaleAt(from_.begin + first + lane), row);
    std::fill(row + layout_.row_elems, row + padded_, 0.0f);
    rows_[lane] = reinterpret_cast<const std::byte*>(row);
  }

  const TokenRange& from_;
  const ViewLayout& layout_;
  const size_t padded_;
  const bool pairs_, direct_;
  float *const scratch_, *const zeros_;
  RowCursor cursor_, ahead_cursor_;
  const std::byte* rows_[kLanes];
  const std::byte* ahead_[kLanes];
};
#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
