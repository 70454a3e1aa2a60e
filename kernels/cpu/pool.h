// Pooling of scores along the tokens.
#ifndef KVTRIAGE_KERNELS_CPU_POOL_H_
#define KVTRIAGE_KERNELS_CPU_POOL_H_

#include <span>
#include <vector>

#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Pools `scores` in place, as Pool (kvtriage/kernels/score.h) describes. `kernel` is odd. `scratch`
// is work memory.
void PoolScores(Pool pool, uint32_t kernel, std::span<float> scores, std::vector<float>& scratch);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_POOL_H_
