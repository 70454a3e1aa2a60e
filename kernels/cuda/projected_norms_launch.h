// What projecting values is started with (projected_norms.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

// W_O of one list's request, [hidden, Hq, dv]; query heads [first_head, first_head + group) are the
// list's.
struct ListProjection {
  DeviceTensor weights;
  uint32_t hidden, first_head, group;
};

struct ProjectArgs {
  const DeviceList* lists;
  const ListProjection* projections;  // [lists]
  const ListPiece* pieces;            // of kProductTile rows
  float* norms;                       // [rows of all lists]
};

cudaError_t LaunchProjectValues(const ProjectArgs& args, uint32_t pieces, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_
