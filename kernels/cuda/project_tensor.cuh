// |W_O v|_1 on tensor cores, for values and weights of one 16-bit type: products are exact, sums
// are float32, as in projected_norms.cuh.
//
// A block takes 128 tokens, a warp 32 of them: their values stay in its registers as fragments, all
// rows of W_O of the group's query heads pass through shared memory, 64 at a time and the next ones
// on their way. A token's magnitudes are added up inside one warp.
#ifndef KVTRIAGE_KERNELS_CUDA_PROJECT_TENSOR_CUH_
#define KVTRIAGE_KERNELS_CUDA_PROJECT_TENSOR_CUH_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/list_rows.cuh"
#include "kernels/cuda/projected_norms_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Bytes from one row in shared memory to the next: an odd number of 16-byte pieces, so that eight
// rows of a matrix lie in different banks.
template <uint32_t kSteps>
SIMT_DEVICE constexpr uint32_t TensorPitch() {
  return kSteps * 32 + 16;
}

// By all threads, eight a row: starts copying rows [0, kRows) to `to`; row(i) is where row i lies,
// null: zeros. `anywhere` is a legal address. Elements behind `elems` become 0.
template <uint32_t kSteps, uint32_t kRows, class Row>
SIMT_DEVICE void CopyRows(std::byte* to, const std::byte* anywhere, uint32_t elems, Row row) {
  const uint32_t first = simt::ThreadX() % 8;
  SIMT_UNROLL_BY(1)
  for (uint32_t r = simt::ThreadX() / 8; r < kRows; r += kTensorThreads / 8) {
    const std::byte* const from = row(r);
    std::byte* const at = to + r * TensorPitch<kSteps>();
    SIMT_UNROLL
    for (uint32_t piece = first; piece < 2 * kSteps; piece += 8) {
      const bool there = from != nullptr && piece * 8 < elems;
      simt::AsyncCopy16(at + piece * 16, there ? from + piece * 16 : anywhere, there ? 16 : 0);
    }
  }
  simt::AsyncCommit();
}

template <bool kHalf>
SIMT_DEVICE void MultiplyFragments(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kHalf) {
    simt::MmaF16(d, a, b);
  } else {
    simt::MmaBf16(d, a, b);
  }
}

// By a whole warp: adds the magnitudes of the products of its 32 tokens with 16 rows of W_O at
// `rows`. sums[m][0] belongs to token 16 m + lane / 4, sums[m][1] to the one 8 behind it.
template <uint32_t kSteps, bool kHalf>
SIMT_DEVICE void AddMagnitudes(const uint32_t (&values)[2][kSteps][4], const std::byte* rows,
                               float (&sums)[2][2]) {
  const uint32_t lane = simt::ThreadX() % 32;
  const std::byte* const at =
      rows + (lane / 16 * 8 + lane % 8) * TensorPitch<kSteps>() + lane / 8 % 2 * 16;
  float products[2][2][4] = {};
  SIMT_UNROLL
  for (uint32_t k = 0; k < kSteps; ++k) {
    uint32_t b[4];
    simt::LdMatrix<4>(b, at + k * 32);
    const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    SIMT_UNROLL
    for (uint32_t m = 0; m < 2; ++m) {
      MultiplyFragments<kHalf>(products[m][0], values[m][k], low);
      MultiplyFragments<kHalf>(products[m][1], values[m][k], high);
    }
  }
  SIMT_UNROLL
  for (uint32_t m = 0; m < 2; ++m) {
    SIMT_UNROLL
    for (uint32_t n = 0; n < 2; ++n) {
      sums[m][0] += fabsf(products[m][n][0]) + fabsf(products[m][n][1]);
      sums[m][1] += fabsf(products[m][n][2]) + fabsf(products[m][n][3]);
    }
  }
}

// Grid: x pieces of kTensorTokens rows. Head sizes up to 16 * kSteps.
template <uint32_t kSteps, bool kHalf>
SIMT_KERNEL void SIMT_BOUNDS(kTensorThreads, 3) ProjectTensorKernel(ProjectArgs args) {
  constexpr uint32_t kStageBytes = kTensorRows * TensorPitch<kSteps>();
  std::byte* const shared = simt::SharedMemory(0);
  const ListPiece piece = args.pieces[simt::BlockX()];
  const DeviceList& list = args.lists[piece.list];
  const ListProjection& projection = args.projections[piece.list];
  const uint32_t elems = list.v->row_elems, lane = simt::ThreadX() % 32;
  const uint32_t first_token = simt::ThreadX() / 32 * 32;

  CopyRows<kSteps, kTensorTokens>(shared, list.v->rows.head, elems, [&](uint32_t t) {
    const uint64_t row = uint64_t{piece.first_row} + t;
    return row < list.rows ? RowAt(list.v->rows, row) + list.head * list.v->head_stride : nullptr;
  });
  simt::AsyncWait<0>();
  simt::SyncThreads();
  uint32_t values[2][kSteps][4];
  SIMT_UNROLL
  for (uint32_t m = 0; m < 2; ++m) {
    const std::byte* const at =
        shared + (first_token + m * 16 + lane % 16) * TensorPitch<kSteps>() + lane / 16 * 16;
    SIMT_UNROLL
    for (uint32_t k = 0; k < kSteps; ++k) simt::LdMatrix<4>(values[m][k], at + k * 32);
  }
  simt::SyncThreads();

  const uint32_t rows = projection.group * projection.hidden;
  const auto copy_stage = [&](uint32_t stage) {
    CopyRows<kSteps, kTensorRows>(
        shared + stage % 2 * kStageBytes, projection.weights.base, elems,
        [&](uint32_t i) -> const std::byte* {
          const uint32_t number = stage * kTensorRows + i;
          if (number >= rows) return nullptr;
          const uint32_t h = number / projection.hidden;
          return projection.weights.base +
                 uint64_t{number - h * projection.hidden} * projection.weights.row_stride +
                 uint64_t{projection.first_head + h} * projection.weights.head_stride;
        });
  };
  const uint32_t stages = (rows + kTensorRows - 1) / kTensorRows;
  double totals[2][2] = {};
  copy_stage(0);
  for (uint32_t stage = 0; stage < stages; ++stage) {
    copy_stage(stage + 1);  // behind the last: zeros, which nobody reads
    simt::AsyncWait<1>();
    simt::SyncThreads();
    float sums[2][2] = {};
    SIMT_UNROLL_BY(1)
    for (uint32_t row = 0; row < kTensorRows; row += 16) {
      AddMagnitudes<kSteps, kHalf>(
          values, shared + stage % 2 * kStageBytes + row * TensorPitch<kSteps>(), sums);
    }
    SIMT_UNROLL
    for (uint32_t m = 0; m < 2; ++m) {
      totals[m][0] += sums[m][0];
      totals[m][1] += sums[m][1];
    }
    simt::SyncThreads();
  }
  simt::AsyncWait<0>();
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    double total = totals[i / 2][i % 2];  // four lanes have the products of a token
    total += simt::ShuffleXor(simt::kAllLanes, total, 1);
    total += simt::ShuffleXor(simt::kAllLanes, total, 2);
    const uint64_t row =
        uint64_t{piece.first_row} + first_token + i / 2 * 16 + i % 2 * 8 + lane / 4;
    if (lane % 4 != 0 || row >= list.rows) continue;
    simt::Store(args.norms + list.first + row, static_cast<float>(total / projection.group));
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PROJECT_TENSOR_CUH_
