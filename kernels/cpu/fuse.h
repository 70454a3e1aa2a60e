// CPU side of kernels/fuse.h.
#ifndef KVTRIAGE_KERNELS_CPU_FUSE_H_
#define KVTRIAGE_KERNELS_CPU_FUSE_H_

#include <span>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/fuse.h"

namespace kvtriage {

void CopyNumberedRows(std::span<const RowCopy> copies, ThreadTeam& team, RowCopyResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_FUSE_H_
