// Moves of one call, shared over the team by (request, head).
#ifndef KVTRIAGE_KERNELS_CPU_COMPACT_H_
#define KVTRIAGE_KERNELS_CPU_COMPACT_H_

#include <span>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/compact.h"

namespace kvtriage {

// See MoveRequest for what must hold. Returns when every byte is visible to all threads.
void MoveRows(std::span<const MoveRequest> requests, ThreadTeam& team, MoveResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_COMPACT_H_
