// Which requests the tensor-core scorer (score_mma.cuh) takes: those as engines have them.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_H_

#include <cstdint>

#include "kernels/cuda/score_launch.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

enum class MmaType : uint8_t { kNone, kBf16, kF16 };

// Not kNone: K, Q and (where they are read) V and the given O are of that type, of at most 256
// elements; logits are plain products, and heads are summed or averaged. Everything else is scored
// by score_tokens.cuh.
MmaType MmaTypeOf(const ScoreRequest& request);

// Rows of other strides and alignments are right too, but read element by element.
WideInputs WideInputsOf(const ScoreRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_H_
