// What a measurement of query rows is started with (quality.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_QUALITY_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_QUALITY_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/host_device.h"
#include "kernels/core/logit_rule.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/query_rows_launch.h"

namespace kvtriage {

inline constexpr uint32_t kQualityThreads = 128;
// Tokens whose values are added up in float32 before they join the sums in float64.
inline constexpr uint32_t kQualityChunk = 512;

// What a block measures at once, by the wider of a layer's rows of K and V.
struct QualityShape {
  uint32_t elems;   // most elements of a row
  uint32_t tokens;  // of a tile
  uint32_t rows;    // query rows
};
inline constexpr QualityShape kQualityShapes[] = {{128, 64, 16}, {256, 32, 8}, {576, 16, 4}};

// Sums of one query row, as RowQuality (kernels/core/quality_rules.h).
struct QualityRow {
  double mass, total, error_square, output_square;
  uint32_t seen;  // 0: it may not vote, or sees no good token; nothing else is set
};

// One request. Its query rows are those of `query`, numbered as there; `averaged` is not used.
struct QualityItem {
  QueryItem query;
  DeviceTensor a;        // ready-made weights [rows, Hq, N]; base null: from queries
  const uint32_t* kept;  // [KV heads][words]: bit p % 32 of word p / 32 is set where p is kept
  uint32_t words;
  uint32_t finds_lse;  // 1: a first pass over the tokens finds the rows' log-sum-exps
  uint32_t has_sink;   // a learned sink is declared
  LogitRule rule;
  QualityRow* out;  // [KV heads][rows]
};

// Floats from one token's weights to the next: no bank conflicts for pieces of four.
KVTRIAGE_HOST_DEVICE inline constexpr uint32_t QualityWeightPitch(uint32_t rows) {
  return rows == 4 ? 4 : rows + 4;
}

// Shared memory of a block: float64 sums of values [2][rows][dv], a number for each thread; then
// weights, flags of bad tokens, five numbers for each row, and the tile.
inline constexpr size_t QualitySharedBytes(const QualityShape& shape, size_t dv, size_t pitch) {
  return (2 * shape.rows * dv + kQualityThreads) * sizeof(double) +
         (shape.tokens * (QualityWeightPitch(shape.rows) + 1) + 5 * shape.rows +
          shape.tokens * pitch) *
             sizeof(float);
}

// One launch for all items, whose rows of K and V fit kQualityShapes[shape].
struct QualityExtent {
  uint32_t items, units, heads;  // how many; the most units and KV heads of an item
  uint32_t dv, elems;            // the longest rows of V, and of K and V
};
cudaError_t LaunchQuality(const QualityItem* items, size_t shape, const QualityExtent& extent,
                          cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUALITY_LAUNCH_H_
