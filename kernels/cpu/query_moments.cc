#include "kernels/cpu/query_moments.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/query_moments.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

constexpr size_t kChunkRows = 256;  // centred rows that lie side by side

// Rows and columns of the sums: whole tiles and whole panels.
size_t MomentPitch(size_t elems) {
  constexpr size_t kStep = std::lcm(kPanel, kTileRows);
  return (elems + kStep - 1) / kStep * kStep;
}

bool ReadQuery(const TensorView& queries, uint64_t row, uint32_t head, float* out) {
  WidenStrided(queries.At(row, head, 0), queries.elem_stride, queries.dtype, queries.elems, out);
  return std::all_of(out, out + queries.elems, [](float x) { return std::isfinite(x); });
}

void FindMean(const TensorView& queries, uint32_t head, uint64_t first_row, float* row,
              QueryMoments& moments) {
  moments.mean.assign(queries.elems, 0.0);
  for (uint64_t i = first_row; i < queries.rows; ++i) {
    const bool good = ReadQuery(queries, i, head, row);
    ++(good ? moments.rows : moments.skipped);
    for (size_t c = 0; good && c < queries.elems; ++c) moments.mean[c] += row[c];
  }
  for (double& x : moments.mean) {
    x /= static_cast<double>(std::max<uint64_t>(1, moments.rows));
  }
}

// sums += rows^T rows, for `count` rows of `pitch` elements.
void AddProducts(const float* rows, size_t count, size_t pitch, float* sums, float* lost) {
  for (size_t r = 0; r < pitch; r += kTileRows) {
    for (size_t j = 0; j < pitch; j += kPanel) {
      Multiply<kTileRows, kPanelVectors, true>(rows + r, pitch, 1, rows + j, pitch, count,
                                               sums + r * pitch + j, pitch, lost + r * pitch + j);
    }
  }
}

QueryMoments FindQueryMomentsImpl(const TensorView& queries, uint32_t head, uint64_t first_row,
                                  MomentScratch& scratch) {
  QueryMoments moments;
  const size_t elems = queries.elems, pitch = MomentPitch(elems);
  float* const rows = scratch.rows.Reserve(kChunkRows * pitch);
  FindMean(queries, head, first_row, rows, moments);
  if (moments.rows == 0) return moments;
  float* const sums = scratch.sums.Reserve(pitch * pitch);
  float* const lost = scratch.lost.Reserve(pitch * pitch);
  std::fill_n(sums, pitch * pitch, 0.0f);
  std::fill_n(lost, pitch * pitch, 0.0f);
  std::fill_n(rows, kChunkRows * pitch, 0.0f);
  size_t filled = 0;
  for (uint64_t i = first_row; i < queries.rows; ++i) {
    float* const row = rows + filled * pitch;
    if (ReadQuery(queries, i, head, row)) {
      for (size_t c = 0; c < elems; ++c) row[c] = static_cast<float>(row[c] - moments.mean[c]);
      ++filled;
    }
    if (filled < kChunkRows && i + 1 < queries.rows) continue;
    AddProducts(rows, filled, pitch, sums, lost);
    filled = 0;
  }
  moments.covariance.resize(elems * elems);
  for (size_t r = 0; r < elems; ++r) {
    for (size_t c = 0; c < elems; ++c) {
      const double sum = double{sums[r * pitch + c]} - lost[r * pitch + c];
      moments.covariance[r * elems + c] = sum / static_cast<double>(moments.rows);
    }
  }
  return moments;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(FindQueryMomentsImpl);

QueryMoments FindQueryMoments(const TensorView& queries, uint32_t head, uint64_t first_row,
                              MomentScratch& scratch) {
  return HWY_DYNAMIC_DISPATCH(FindQueryMomentsImpl)(queries, head, first_row, scratch);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
