// How much a value vector adds to the output of its attention block.
#ifndef KVTRIAGE_KERNELS_CPU_PROJECTED_NORMS_H_
#define KVTRIAGE_KERNELS_CPU_PROJECTED_NORMS_H_

#include <cstdint>

#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// Work memory of one worker.
struct ProjectScratch {
  AlignedFloats pack, values, rows, blocks, tile, sums;
};

// norms[t] = mean over the query heads h of the group of sum over i of |projection[i, h, :] . v|, v
// of row begin + t. `projection` is [hidden, Hq, dv].
void ProjectedNorms(const LayerRows& layer, const TensorView& projection, uint32_t kv_head,
                    uint64_t begin, uint64_t end, ProjectScratch& scratch, float* norms);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_PROJECTED_NORMS_H_
