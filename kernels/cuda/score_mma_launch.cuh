// The instances of the tensor-core scorer for one type, which a source of its own compiles.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_LAUNCH_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_LAUNCH_CUH_

#include "kernels/cuda/launch.h"
#include "kernels/cuda/score_mma.cuh"

namespace kvtriage {

template <ScoreTerm kTerm, uint32_t kD, bool kBf16>
cudaError_t LaunchMmaInstance(const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream) {
  constexpr MmaShape kShape = MmaShapeOf(kD);
  LaunchShape shape;
  shape.blocks_x = (sizes.tokens + kShape.block_tokens - 1) / kShape.block_tokens;
  shape.blocks_y = sizes.heads;
  shape.blocks_z = sizes.items;
  shape.threads = kMmaThreads;
  shape.shared_bytes = size_t{MmaStagedRows(kD, UsesOutputs(kTerm))} * MmaPitch(kD) +
                       MmaColumnBytes(kShape.query_rows) + kMmaWarps * kMmaPairs * sizeof(MmaPair) +
                       kShape.block_tokens * sizeof(float);
  return LaunchKernel(ScoreMmaKernel<kTerm, kD, kBf16>, shape, stream, items);
}

template <ScoreTerm kTerm, bool kBf16>
cudaError_t LaunchMmaTerm(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream) {
  switch (MmaElems(sizes.row_elems)) {
    case 64:
      return LaunchMmaInstance<kTerm, 64, kBf16>(items, sizes, stream);
    case 128:
      return LaunchMmaInstance<kTerm, 128, kBf16>(items, sizes, stream);
    default:
      return LaunchMmaInstance<kTerm, kMmaMostElems, kBf16>(items, sizes, stream);
  }
}

template <bool kBf16>
cudaError_t LaunchMma(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                      cudaStream_t stream) {
  switch (term) {
    case ScoreTerm::kMass:
      return LaunchMmaTerm<ScoreTerm::kMass, kBf16>(items, sizes, stream);
    case ScoreTerm::kValue:
      return LaunchMmaTerm<ScoreTerm::kValue, kBf16>(items, sizes, stream);
    case ScoreTerm::kKey:
      return LaunchMmaTerm<ScoreTerm::kKey, kBf16>(items, sizes, stream);
    case ScoreTerm::kJoint:
      return LaunchMmaTerm<ScoreTerm::kJoint, kBf16>(items, sizes, stream);
    case ScoreTerm::kDrop:
      return LaunchMmaTerm<ScoreTerm::kDrop, kBf16>(items, sizes, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_LAUNCH_CUH_
