// CPU side of RotateRequest (kernels/rotate.h).
#ifndef KVTRIAGE_KERNELS_CPU_ROTATE_H_
#define KVTRIAGE_KERNELS_CPU_ROTATE_H_

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/rotate.h"

namespace kvtriage {

// Adds to `result`.
void RotateKeys(const RotateRequest& request, ThreadTeam& team, RotateResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_ROTATE_H_
