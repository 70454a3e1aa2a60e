// Quality of a kept set on the CPU. Contract of the numbers: kvtriage/kernels/quality.h.
#ifndef KVTRIAGE_KERNELS_CPU_QUALITY_H_
#define KVTRIAGE_KERNELS_CPU_QUALITY_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/quality.h"

namespace kvtriage {

// Measures one layer of one sequence with all threads of `team`. Overwrites `result`. The numbers
// do not depend on the threads.
void MeasureLayer(const QualityRequest& request, ThreadTeam& team, QualityResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_QUALITY_H_
