// Products of few rows with tokens as they come from memory. Where one block holds all rows, a
// packed panel would be read once only, and storing it would cost more than multiplying: decode
// steps are bound by memory. The bits are those of PackPanel and MultiplyPanel.

#if defined(KVTRIAGE_KERNELS_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_STREAM_INL_H_
#undef KVTRIAGE_KERNELS_CPU_STREAM_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_STREAM_INL_H_
#endif

#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Whether StreamProducts and StreamNorms can read rows of this layout.
HWY_INLINE bool CanStream([[maybe_unused]] const ViewLayout& layout) {
  return HWY_TARGET != HWY_SCALAR && layout.contiguous_rows();
}

#if HWY_TARGET != HWY_SCALAR
// Multiplies a vector of tokens with a block of rows, each product one chain as in Multiply.
template <size_t kRows>
struct ProductColumn {
  const float* block;  // [elems][kRows]
  size_t elems;        // what comes behind is padding
  V sums[kRows];

  HWY_INLINE ProductColumn(const float* rows, size_t depth) : block(rows), elems(depth) {
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) sums[r] = hn::Zero(D());
  }
  HWY_INLINE void Take(size_t k, V x) {
    if (HWY_UNLIKELY(k >= elems)) return;
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(hn::Set(D(), block[k * kRows + r]), x, sums[r]);
    }
  }
};

struct NoColumn {
  HWY_INLINE void Take(size_t, V) {}
};

template <Norm kNorm, size_t kRows>
HWY_NOINLINE void StreamProductsOf(const TokenRange& from, const float* block, float* scratch,
                                   float* tile, float* bad, float* norms) {
  RowVectors rows(from, scratch);
  for (size_t v = 0; v < kPanel; v += kLanes) {
    ProductColumn<kRows> column(block, from.view.layout.row_elems);
    rows.Transpose<kNorm>(v, column, bad + v, norms + v);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) hn::Store(column.sums[r], D(), tile + r * kPanel + v);
  }
}
#endif  // HWY_SCALAR

// tile[rows][kPanel] = block[elems][rows]^T * the tokens; 1 <= rows <= kRows. bad and norms as for
// PackPanel.
template <Norm kNorm, size_t kRows = kTileRows>
HWY_INLINE void StreamProducts([[maybe_unused]] const TokenRange& from,
                               [[maybe_unused]] const float* block, [[maybe_unused]] size_t rows,
                               [[maybe_unused]] float* scratch, [[maybe_unused]] float* tile,
                               [[maybe_unused]] float* bad, [[maybe_unused]] float* norms) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return StreamProducts<kNorm, kRows - 1>(from, block, rows, scratch, tile, bad, norms);
    }
  }
  StreamProductsOf<kNorm, kRows>(from, block, scratch, tile, bad, norms);
#endif
}

// bad and norms alone.
template <Norm kNorm>
HWY_NOINLINE void StreamNorms([[maybe_unused]] const TokenRange& from,
                              [[maybe_unused]] float* scratch, [[maybe_unused]] float* bad,
                              [[maybe_unused]] float* norms) {
#if HWY_TARGET != HWY_SCALAR
  RowVectors rows(from, scratch);
  for (size_t v = 0; v < kPanel; v += kLanes) {
    NoColumn column;
    rows.Transpose<kNorm>(v, column, bad + v, norms + v);
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
