// What Expected Attention's pass over the cache is started with (score_expected.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

// What one query head will ask with (ExpectedForm in kernels/core/expected_rules.h).
struct QueryForm {
  const float* linear;     // [dk]
  const float* quadratic;  // [dk][dk]
  float* logits;           // [N]
  uint32_t usable;         // 0: the head has no moments; its logits are not written
};

struct ExpectedArgs {
  ListPlan plan;
  const ListPiece* tiles;      // of kProductTile rows
  const uint32_t* first_form;  // [lists + 1] forms of a list's group
  const QueryForm* forms;
  float* norms;  // [rows of all lists] |v|_2; NaN where K or V is not finite
};

cudaError_t LaunchValueNorms(const ExpectedArgs& args, uint32_t pieces, cudaStream_t stream);
cudaError_t LaunchExpectedLogits(const ExpectedArgs& args, uint32_t tiles, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_EXPECTED_LAUNCH_H_
