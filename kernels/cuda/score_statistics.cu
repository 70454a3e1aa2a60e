#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_outputs.cuh"
#include "kernels/cuda/score_statistics.cuh"

namespace kvtriage {
namespace {

constexpr uint32_t kWideRows = 32, kLongRows = 8;  // of values up to kScoreThreads elements; longer
constexpr uint32_t kLongPieces = 5;                // of at most 576 elements

LaunchShape ShapeOf(const ScoreSizes& sizes, uint32_t blocks_x, size_t shared_bytes) {
  LaunchShape shape;
  shape.blocks_x = blocks_x;
  shape.blocks_y = sizes.heads;
  shape.blocks_z = sizes.items;
  shape.threads = kScoreThreads;
  shape.shared_bytes = shared_bytes;
  return shape;
}

uint32_t Blocks(uint32_t count, uint32_t of_block) { return (count + of_block - 1) / of_block; }

// Tiles, which tokens are bad, and `numbers` floats.
size_t SharedBytes(const ScoreSizes& sizes, size_t numbers) {
  return (sizes.key_bytes + sizes.value_bytes + 15) / 16 * 16 + size_t{kMostTileTokens} * 4 +
         numbers * 4;
}

}  // namespace

cudaError_t LaunchRowParts(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream) {
  const size_t shared = SharedBytes(sizes, size_t{kPartRows} * (kMostTileTokens + kThreadsOfRow));
  const uint32_t blocks = Blocks(sizes.rows, kPartRows) * sizes.parts;
  return LaunchKernel(RowPartsKernel, ShapeOf(sizes, blocks, shared), stream, items);
}

cudaError_t LaunchJoinRows(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream) {
  const uint32_t blocks = Blocks(sizes.units, kScoreThreads);
  return LaunchKernel(JoinRowsKernel, ShapeOf(sizes, blocks, 0), stream, items);
}

cudaError_t LaunchOutputParts(const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream) {
  const bool wide = sizes.value_elems <= kScoreThreads;
  const uint32_t rows = wide ? kWideRows : kLongRows;
  const uint32_t blocks = Blocks(sizes.rows, rows) * sizes.parts;
  const LaunchShape shape =
      ShapeOf(sizes, blocks, SharedBytes(sizes, size_t{kMostTileTokens} * (rows + 4)));
  return wide ? LaunchKernel(OutputPartsKernel<kWideRows, 1>, shape, stream, items)
              : LaunchKernel(OutputPartsKernel<kLongRows, kLongPieces>, shape, stream, items);
}

cudaError_t LaunchJoinOutputs(const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream) {
  const uint32_t blocks = Blocks(sizes.units, kScoreThreads / 32);
  return LaunchKernel(JoinOutputsKernel, ShapeOf(sizes, blocks, 0), stream, items);
}

}  // namespace kvtriage
