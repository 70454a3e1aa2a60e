// The selection step of a whole call: every request's lists, shared over the team.
#ifndef KVTRIAGE_KERNELS_CPU_SELECT_LISTS_H_
#define KVTRIAGE_KERNELS_CPU_SELECT_LISTS_H_

#include <span>
#include <vector>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/select.h"

namespace kvtriage {

// results[i] belongs to requests[i]; see SelectRequest for what must hold.
void SelectLists(std::span<const SelectRequest> requests, ThreadTeam& team,
                 std::vector<SelectResult>& results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SELECT_LISTS_H_
