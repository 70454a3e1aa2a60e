// The lists of a call as the kernels that score them get them: one list per request and KV head,
// cut into pieces of rows, a block each. All layers of a call go in one launch.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/device_view.h"

namespace kvtriage {

inline constexpr uint32_t kListThreads = 128;
// Rows of a piece. Fixed: sums over pieces depend on it.
inline constexpr uint32_t kPieceRows = 256;

struct DeviceList {
  const DeviceView* k;
  const DeviceView* v;      // null when nothing reads V
  uint32_t k_wide, v_wide;  // 1: all pieces of 8 elements are aligned, whole ones
  uint32_t head;            // KV head
  uint32_t rows;            // N
  uint64_t first;           // place of row 0 in arrays with one number per row of all lists
  uint32_t first_piece;
};

struct ListPiece {
  uint32_t list, first_row;
};

struct ListPlan {
  const DeviceList* lists;
  const ListPiece* pieces;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LISTS_LAUNCH_H_
