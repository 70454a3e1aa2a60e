// What a block of the tensor-core scorer stages in shared memory: its tokens, then tiles of query
// rows.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_ROWS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_ROWS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/query_rows_launch.h"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_mma_shape.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// What a query row needs beside its products.
struct MmaColumn {
  float lse2, output_square, drop_weight;
  int32_t first, limit;
};

// The columns of two tiles of query rows, a list of each number.
class MmaColumns {
 public:
  static constexpr uint32_t kNumbers = 5;

  SIMT_DEVICE MmaColumns(std::byte* bytes, uint32_t rows)
      : floats_(bytes), places_(bytes), rows_(rows) {}
  SIMT_DEVICE MmaColumn At(uint32_t buffer, uint32_t row) const {
    const uint32_t at = buffer * kNumbers * rows_ + row;
    return {floats_[at], floats_[at + rows_], floats_[at + 2 * rows_], places_[at + 3 * rows_],
            places_[at + 4 * rows_]};
  }
  SIMT_DEVICE void Set(uint32_t buffer, uint32_t row, const MmaColumn& column) const {
    const uint32_t at = buffer * kNumbers * rows_ + row;
    floats_[at] = column.lse2;
    floats_[at + rows_] = column.output_square;
    floats_[at + 2 * rows_] = column.drop_weight;
    places_[at + 3 * rows_] = column.first;
    places_[at + 4 * rows_] = column.limit;
  }

 private:
  simt::Shared<float> floats_;
  simt::Shared<int32_t> places_;
  uint32_t rows_;
};

// A pair that is computed directly.
struct MmaPair {
  uint32_t token, row;  // in the warp's tokens; number of the unit
  float weight, product;
};

template <uint32_t kD>
struct MmaShared {
  static constexpr uint32_t kPitch = MmaPitch(kD);
  std::byte* rows;              // [staged rows][kPitch]: K and V first, then Q and O twice
  MmaColumns columns;           // of two tiles of query rows
  simt::Shared<MmaPair> pairs;  // [warps][kMmaPairs]
  simt::Shared<float> direct;   // [warps][tokens of a warp]
};

template <uint32_t kD>
SIMT_DEVICE MmaShared<kD> ShareMma(bool outputs) {
  constexpr MmaShape kShape = MmaShapeOf(kD);
  const size_t rows = size_t{MmaStagedRows(kD, outputs)} * MmaPitch(kD);
  const size_t columns = rows + MmaColumnBytes(kShape.query_rows);
  const size_t pairs = columns + kMmaWarps * kMmaPairs * sizeof(MmaPair);
  return {simt::SharedMemory(0), MmaColumns(simt::SharedMemory(rows), kShape.query_rows),
          simt::Shared<MmaPair>(simt::SharedMemory(columns)),
          simt::Shared<float>(simt::SharedMemory(pairs))};
}

// Rows that are staged: element strides in bytes, and whether pieces of 16 bytes may be copied.
struct MmaRows {
  uint64_t elem_stride;
  uint32_t elems;
  bool wide;
};

// Copies elements [8 * chunk, 8 * chunk + 8) of a row, zeros for those behind its end; a null row
// is zeros. Wide pieces land when their group of copies is waited for.
SIMT_DEVICE void StageChunk(const MmaRows& rows, const std::byte* row, uint32_t chunk,
                            const std::byte* any, std::byte* to) {
  const bool inside = row != nullptr && chunk * 8 < rows.elems;
  if (rows.wide) {
    return simt::AsyncCopy16(to, inside ? row + chunk * 16 : any, inside ? 16 : 0);
  }
  uint32_t pairs[4] = {};
  SIMT_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {  // unrolled, so that the pairs are registers
    const uint32_t e = chunk * 8 + i;
    if (!inside || e >= rows.elems) continue;
    const uint32_t bits = simt::Load(reinterpret_cast<const uint16_t*>(row + e * rows.elem_stride));
    pairs[i / 2] |= bits << i % 2 * 16;
  }
  const simt::Shared<simt::Vec16> staged(to);
  staged[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// By all threads: a block's tokens.
template <uint32_t kD>
SIMT_DEVICE void StageTokens(const DeviceView& view, bool wide, uint32_t kv_head, uint32_t first,
                             uint32_t count, std::byte* to) {
  constexpr uint32_t kChunks = kD / 8, kTokens = MmaShapeOf(kD).block_tokens;
  const MmaRows rows{view.rows.elem_stride, view.row_elems, wide};
  for (uint32_t i = simt::ThreadX(); i < kTokens * kChunks; i += kMmaThreads) {
    const uint32_t token = i / kChunks, chunk = i % kChunks;
    const std::byte* const row =
        token < count ? RowAt(view.rows, uint64_t{first} + token) + kv_head * view.head_stride
                      : nullptr;
    StageChunk(rows, row, chunk, view.rows.head, to + token * MmaPitch(kD) + chunk * 16);
  }
}

// By all threads: query rows [unit0, unit0 + query rows) of a tensor.
template <uint32_t kD>
SIMT_DEVICE void StageQueries(const QueryItem& query, const DeviceTensor& tensor, uint32_t elems,
                              bool wide, uint32_t kv_head, uint32_t unit0, std::byte* to) {
  constexpr uint32_t kChunks = kD / 8, kRows = MmaShapeOf(kD).query_rows;
  const MmaRows rows{tensor.elem_stride, elems, wide};
  for (uint32_t i = simt::ThreadX(); i < kRows * kChunks; i += kMmaThreads) {
    const uint32_t r = i / kChunks, chunk = i % kChunks, unit = unit0 + r;
    const std::byte* row = nullptr;
    if (unit < query.unit_count) {
      const uint32_t number = query.unit_begin + unit;
      const uint32_t head = kv_head * query.group + number / query.window_rows;
      row = tensor.base +
            uint64_t{query.first_row + number % query.window_rows} * tensor.row_stride +
            head * tensor.head_stride;
    }
    StageChunk(rows, row, chunk, tensor.base, to + r * MmaPitch(kD) + chunk * 16);
  }
}

// By all threads: a tile of query rows, into one of two buffers, as one group of copies.
template <uint32_t kD, bool kOutputs>
SIMT_DEVICE void StageTile(const ScoreItem& item, uint32_t kv_head, uint32_t unit0, uint32_t buffer,
                           const MmaShared<kD>& shared) {
  const QueryItem& query = item.rows;
  constexpr uint32_t kRows = MmaShapeOf(kD).query_rows;
  if (unit0 < query.unit_count) {
    std::byte* const to = shared.rows + size_t{buffer} * kRows * MmaPitch(kD);
    StageQueries<kD>(query, query.q, query.k.row_elems, item.wide.q != 0, kv_head, unit0, to);
    if constexpr (kOutputs) {
      StageQueries<kD>(query, query.o, query.o_elems, item.wide.o != 0, kv_head, unit0,
                       to + size_t{2} * kRows * MmaPitch(kD));
    }
    for (uint32_t r = simt::ThreadX(); r < kRows; r += kMmaThreads) {
      MmaColumn column{0, 0, 0, 0, 0};  // sees nothing
      if (unit0 + r < query.unit_count) {
        const QueryRow& row = query.rows[uint64_t{kv_head} * query.unit_count + unit0 + r];
        column = {row.lse2, row.output_square, row.drop_weight, row.first, row.limit};
      }
      shared.columns.Set(buffer, r, column);
    }
  }
  simt::AsyncCommit();
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_ROWS_CUH_
