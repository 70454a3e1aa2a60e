// The difference of fresh and cached rows on the CPU. Contract: kvtriage/kernels/divergence.h.
#ifndef KVTRIAGE_KERNELS_CPU_DIVERGENCE_H_
#define KVTRIAGE_KERNELS_CPU_DIVERGENCE_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/divergence.h"

namespace kvtriage {

// Element e of every head adds to lane e % 32 in head order, and the lanes are joined by halving,
// so the bits depend on neither threads nor instruction set nor layout.
void DivergeRows(const DivergenceRequest& request, ThreadTeam& team, DivergenceResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_DIVERGENCE_H_
